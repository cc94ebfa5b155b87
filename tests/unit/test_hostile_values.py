"""Random text in every value: it is refused with its place, or it stays a value in every script and definition."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit import hostile
from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.images.definitions import definition_file, image_file
from torusrun.orchestrator.images.definitions.definition import Variant, render
from torusrun.orchestrator.images.definitions.image_file import ImageFile
from torusrun.orchestrator.keys.run import RunSpec
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.run.attempts import script as scripts
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.attempt_plan import AttemptPlan
from torusrun.orchestrator.run.plan.job_request import request
from torusrun.orchestrator.run.plan.plan import Plan, plan
from torusrun.orchestrator.schedulers.script import activating

PREFIXES = ("#SBATCH", "#PBS", "#BSUB", "#$", "#@", "#COBALT", "#PJM", "#MSUB", "#OAR", "#HQ", "# @")
PREFIX = {"slurm": "#SBATCH ", "pbs": "#PBS ", "gridengine": "#$ ", "local": "#"}
STUB = '#!/bin/sh\n: > end.json\nexec /bin/cat "/proc/$$/environ" > {seen}\n'
ACTIVATES = ("module", "source", "conda", "spack", "mamba", "micromamba")
KEPT = ("runs", "python", "scheduler", "setup")  # setup is shell, not a value
PLACES = [replace(at, key=("run", *at.key)) for at in hostile.places(RunSpec) if at.key[0] != "setup"]
PLACES += [replace(at, key=("site", *at.key)) for at in hostile.places(Site) if at.key[0] not in KEPT]
SEVERAL = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def words(name: str, line: str) -> list[str]:
    """The words that a scheduler makes of a directive's line: sbatch as a shell does, the others by quotes alone."""
    if name == "slurm":
        return shlex.split(line)
    quotes = "\"'" if name == "pbs" else '"'
    found = re.findall(rf"(?:[^\s{quotes}]|" + "|".join(f"{q}[^{q}]*{q}" for q in quotes) + ")+", line)
    return [re.sub("|".join(f"{q}([^{q}]*){q}" for q in quotes), lambda m: m[0][1:-1], word) for word in found]


def in_bash(line: str) -> list[bytes]:
    """The words that bash makes of a line: shlex does not know $'...'."""
    said = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, timeout=240, check=True)
    return said.stdout.split(b"\0")[:-1]


def check_directives(made: Plan, text: str) -> None:
    """The head has our directives and nothing after it looks like one; queue and account are single, whole words."""
    name = made.site.scheduler
    run = RunFolder(made.folder)
    asked = schedulers.get(name).directives(request(AttemptPlan(1, made), run.attempt(1)))
    lines = text.split("\n")
    assert lines[1 : len(asked) + 1] == asked
    strange = [line for line in lines[len(asked) + 1 :] if line.lstrip().startswith(PREFIXES)]
    assert not strange, "a value has become a directive"
    said = [word for line in asked for word in words(name, line.removeprefix(PREFIX[name]))]
    queue = made.run.queue or made.site.queue
    if queue and name == "slurm":
        assert f"--partition={queue}" in said
        assert all(len(words(name, line.removeprefix("#SBATCH "))) == 1 for line in asked), "an option was added"
    elif queue and name != "local":
        assert said[said.index("-q") + 1] == queue


def check_exports(made: Plan, text: str, folder: Path) -> None:
    """The script, run by a real bash, gives its program exactly the variables that were written."""
    attempt, seen = RunFolder(made.folder).attempt(1), folder / "seen"
    attempt.folder.mkdir(parents=True)
    Path(made.python).write_text(STUB.format(seen=shlex.quote(str(seen))))
    Path(made.python).chmod(0o700)
    called = f'() {{ printf \'%s\\0\' "$FUNCNAME" "$@" >> {shlex.quote(str(folder / "called"))}; }}'
    environment = {"PATH": "/usr/bin:/bin", **{f"BASH_FUNC_{name}%%": called for name in ACTIVATES}}
    said = subprocess.run(["bash"], input=text.encode(), capture_output=True, timeout=240, env=environment, cwd=folder)
    assert said.returncode == 0, said.stderr
    found = dict(entry.split(b"=", 1) for entry in seen.read_bytes().split(b"\0") if entry)
    for name, value in made.environment.items():
        if name != "PYTHONPATH":  # relative entries of which are taken out
            assert found[name.encode()] == value.encode(), name
    lines = [*activating(made.site.software), *activating(made.run.software)]
    words = [in_bash(re.sub(r'^eval "\$\((.*)\)"$', r"\1", line)) for line in lines]
    wanted = [word for line in words if line[0].decode() in ACTIVATES for word in line]
    assert wanted == ((folder / "called").read_bytes().split(b"\0")[:-1] if wanted else [])
    loads = [(b"module", b"load", module.encode()) for module in made.site.software.modules]
    assert wanted[: 3 * len(loads)] == [word for load in loads for word in load]


def tricks(base: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every trick there is as a variable, and each of them as a queue."""
    known = [trick for trick in hostile.PRINTABLE + hostile.LINES if not re.search("[\0\ud800-\udfff]", trick)]
    yield {**base, "run": {**base["run"], "env": {f"V{i}": f"a{trick}b" for i, trick in enumerate(known)}}}
    modules = [f"a{trick}" for trick in known if trick.isprintable()]
    yield {**base, "site": {**base["site"], "environment": {"modules": modules}}}
    for trick in known:
        yield {**base, "run": {**base["run"], "queue": f"a{trick}b"}}


@pytest.mark.parametrize("name", list(schedulers.KNOWN))
def test_hostile_values_of_a_run_and_its_site_stay_values(
    name: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    folder, accepted = tmp_path / "a", []
    base = {
        "run": {"name": "x", "site": "site.yaml", "train": {}},
        "site": {
            "scheduler": name, "launcher": "spawn", "ask": ["-pe mpi {ranks}"] if name == "gridengine" else [],
            "runs": str(folder / "my runs"), "python": str(folder / "my 'python"),
        },
    }  # fmt: skip

    def read_and_rendered(document: dict[str, Any]) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for part, values in document.items():
            (folder / f"{part}.yaml").write_text(yaml.safe_dump(values, allow_unicode=True), encoding="utf-8")
        try:
            made = plan(folder / "run.yaml")
            text = scripts.script(AttemptPlan(1, made), RunFolder(made.folder).attempt(1))
        except UserError as error:
            assert str(error) and len(str(error).splitlines()) <= 8
            return
        accepted.append(document)
        check_directives(made, text)
        if "queue" not in document["run"]:
            check_exports(made, text, folder)
        assert not list(folder.rglob("pwned")) and not Path("pwned").exists()

    SEVERAL(given(hostile.planted(base, PLACES))(read_and_rendered))()
    assert len(accepted) > 20, "the text was too wild to try anything"
    for document in tricks(base):
        read_and_rendered(document)


@cache
def is_shell(text: str) -> bool:
    return subprocess.run(["sh", "-n"], input=text.encode(), timeout=240).returncode == 0


def test_hostile_values_of_an_image_file_stay_values(tmp_path: Path) -> None:
    base = {"name": "x", "base": {"docker": "debian"}, "python": {"packages": ["torch==2.0"]}, "system": ["git"]}
    variants, accepted = [Variant(), Variant(host_mpi=True), Variant(wheelhouse=True, offline=True)], []
    sections = {"files", "post", "environment", "labels", "test", "runscript"}

    def read_and_rendered(document: dict[str, Any], variant: Variant) -> None:
        (tmp_path / "x.yaml").write_text(yaml.safe_dump(document, allow_unicode=True), encoding="utf-8")
        try:
            read = image_file.load(tmp_path / "x.yaml")
            text = render(read, variant)
        except UserError as error:
            assert str(error)
            return
        accepted.append(document)
        definition_file.lint(text)
        (stage,) = definition_file.stages(text)
        assert set(stage.sections) <= sections, "a value has added a section"
        own = is_shell(read.post or "")  # these lines are the user's program, and no value
        for name in sections - {"files", "labels"} - (set() if own else {"post"}):
            assert is_shell(stage.sections[name])
        shown = "\nprintf '%s\\0' " + " ".join(f'"${name}"' for name in read.environment)
        said = subprocess.run(
            ["sh", "-c", stage.sections["environment"] + shown],
            capture_output=True,
            timeout=240,
            cwd=tmp_path,
            check=True,
        )
        given_back = [value.decode() for value in said.stdout.split(b"\0")[:-1]]
        assert not read.environment or given_back == list(read.environment.values())
        assert not (tmp_path / "pwned").exists()

    planted = given(hostile.planted(base, hostile.places(ImageFile)), st.sampled_from(variants))
    SEVERAL(planted(read_and_rendered))()
    for trick in filter(str.isprintable, hostile.PRINTABLE):
        read_and_rendered({**base, "environment": {"V": f"a{trick}b"}}, Variant())
    assert len(accepted) > 20, "the text was too wild to try anything"
