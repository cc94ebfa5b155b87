"""No file in the user's working directory is run, on the login node or in the job."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from submitit.core import utils

from tests.e2e.places import ROOT, TWO_RANKS, Local
from torusrun.orchestrator.base import process
from torusrun.orchestrator.images.checks import probe
from torusrun.orchestrator.images.command import TRAINING
from torusrun.orchestrator.images.definitions import definition_file, prepare
from torusrun.orchestrator.images.definitions.definition import PYTHON, Variant, render
from torusrun.orchestrator.images.definitions.image_file import find, load
from torusrun.orchestrator.schedulers import remote_shell

PACKAGES = ("training", "orchestrator", "submitit")
MODULES = (
    "argparse", "cloudpickle", "contextlib", "ctypes", "inspect", "jinja2", "json", "numpy", "orchestrator", "pickle",
    "platform", "random", "re", "rich", "runpy", "select", "sitecustomize", "socket", "spython", "subprocess",
    "tempfile", "torch", "training", "typing", "usercustomize", "uuid", "yaml",
)  # fmt: skip
PLANTED = [*(f"{name}/__{part}__.py" for name in PACKAGES for part in ("init", "main")), *(f"{m}.py" for m in MODULES)]
# Python itself looks for these before torusrun's first line, if the user has it look into the working directory.
OUT_OF_REACH = ("sitecustomize.py", "usercustomize.py")
OUT_OF_REACH_OF_M = ("contextlib.py", "orchestrator.py", "runpy.py", "typing.py")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder with a stranger's modules, with names that torusrun imports."""
    folder = tmp_path / "shared"
    for name in PLANTED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"open({str(tmp_path / 'pwned')!r}, 'a').write({name!r} + chr(10))\n")
    return folder


@pytest.fixture
def torusrun(tmp_path: Path) -> Path:
    """The command, as pip installs it."""
    command = tmp_path / "bin" / "torusrun"
    command.parent.mkdir()
    command.write_text(
        f"#!{sys.executable}\nimport sys\nfrom torusrun.orchestrator.cli.main import main\nsys.exit(main())\n"
    )
    command.chmod(0o755)
    return command


def pwned(shared: Path) -> str:
    found = shared.parent / "pwned"
    return found.read_text() if found.exists() else ""


@pytest.mark.parametrize("path", [str(ROOT), f"{ROOT}::lib:.:"], ids=["absolute", "relative"])
def test_a_run_submitted_from_a_shared_folder_is_the_users_own(
    local: Local, shared: Path, torusrun: Path, path: str
) -> None:
    """The user decides the PYTHONPATH of the client; the client's children get only the absolute entries."""
    local.write_spec()
    spec, site = local.folder / "run.yaml", local.folder / "site.yaml"
    settings = ["--set", f"site={site}", "--set", "train.epochs=2", *TWO_RANKS]
    wrapper = shared.parent / "client.py"
    wrapper.write_text(
        f"import os, sys\nos.environ['PYTHONPATH'] = {path!r}\n"
        "from torusrun.orchestrator.cli.main import main\nsys.exit(main(sys.argv[1:]))\n"
    )
    said = subprocess.run(
        [sys.executable, str(wrapper), "submit", str(spec), *settings, "--wait"],
        cwd=shared, env=local.env, text=True, capture_output=True, timeout=600,
    )  # fmt: skip
    assert said.returncode == 0, said.stdout + said.stderr
    assert not pwned(shared), f"code of the shared folder was run: {pwned(shared)}"
    view = local.view(said.stdout.split()[0])
    assert view["state"] == "COMPLETED" and view["accuracy"] > 0.5, "the training itself must have run"


def test_an_empty_entry_of_the_search_path_is_not_the_working_directory(
    local: Local, shared: Path, torusrun: Path
) -> None:
    """`export PYTHONPATH=/lib:$PYTHONPATH` leaves an empty entry."""
    for name in OUT_OF_REACH:
        (shared / name).unlink()
    for command in ([torusrun], [sys.executable, torusrun], [sys.executable, "-m", "torusrun"]):
        if "-m" in command:
            shutil.rmtree(shared / "orchestrator")
            for name in OUT_OF_REACH_OF_M:
                (shared / name).unlink()
        said = subprocess.run(
            [*command, "plan", str(ROOT / "examples" / "digits.yaml")],
            cwd=shared, env={**local.env, "PYTHONPATH": f"{ROOT}::."}, text=True, capture_output=True, timeout=60,
        )  # fmt: skip
        assert said.returncode == 0, said.stderr
        assert not pwned(shared), command


def test_a_module_is_started_without_the_working_directory(shared: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:.:"}
    for safe in ({}, {"PYTHONSAFEPATH": "1"}):
        argv = process.module(sys.executable, "torusrun.orchestrator.cli.main", "--version")
        said = process.run(argv, timeout_s=30, cwd=shared, environment={**environment, **safe})
        assert said.exit_code == 0 and said.stdout.startswith("torusrun "), said.stderr
    assert not pwned(shared)


def test_files_that_are_started_as_programs_run_nothing_of_the_shared_folder(shared: Path) -> None:
    said = process.run([sys.executable, remote_shell.__file__, "pbs", "nowhere", "true"], timeout_s=30, cwd=shared,
                       environment={"PYTHONPATH": f"{ROOT}:.:", "PATH": str(shared)})  # fmt: skip
    assert "pbs_tmrsh cannot be run" in said.stderr, said.stderr
    assert not pwned(shared)


@pytest.mark.parametrize("file", [remote_shell.__file__, probe.__file__])
def test_no_neighbour_of_such_a_file_has_the_name_of_a_module_of_pythons(file: str) -> None:
    """Python looks into a program's own folder first."""
    assert not {path.stem for path in Path(file).parent.iterdir()} & sys.stdlib_module_names


def test_the_job_that_builds_an_image_runs_nothing_of_the_shared_folder(shared: Path, tmp_path: Path) -> None:
    """Its entry is submitit's, which unpickles its function."""
    folder = tmp_path / "jobs"
    folder.mkdir()
    delayed = utils.DelayedSubmission(Path.write_text, folder / "ran", "it")
    delayed.dump(folder / "1_submitted.pkl")
    numbers = {"JOB_ID": "1", "LOCALID": "0", "GLOBALID": "0", "NTASKS": "1"}
    job = {"SUBMITIT_EXECUTOR": "local", **{f"SUBMITIT_LOCAL_{name}": value for name, value in numbers.items()}}
    said = process.run(
        process.module(sys.executable, "submitit.core._submit", folder), timeout_s=60, cwd=shared,
        environment={**os.environ, "PYTHONPATH": f"{ROOT}::", **job},
    )  # fmt: skip
    assert (folder / "ran").exists(), said.stderr
    assert not pwned(shared)


def test_an_image_starts_the_training_and_no_other(shared: Path) -> None:
    """A user starts the run script of an image by hand, from any folder."""
    script = definition_file.stages(render(load(find("pytorch-cpu")), Variant()))[-1].sections["runscript"]
    here = script.replace(f"{PYTHON}/bin/python", sys.executable).replace(TRAINING, str(ROOT))
    said = process.run(["sh", "-c", here, "run", "missing.json"], timeout_s=60, cwd=shared,
                       environment={**os.environ})  # fmt: skip
    assert "missing.json" in said.stderr and "training:" in said.stderr, said.stderr
    assert not pwned(shared)


@pytest.mark.parametrize("section", ["post", "test"])
def test_what_is_built_into_an_image_is_looked_for_from_its_root(section: str) -> None:
    text = definition_file.stages(prepare.rendered(find("pytorch-cpu"), Variant())[0])[-1].sections[section]
    assert " -m pip" in text.partition("\n    cd /")[2] and " -m " not in text.partition("\n    cd /")[0]


def test_no_child_is_started_with_dash_m() -> None:
    """`python -m` looks into the working directory first; `process.module` does not.

    Definitions of images are an exception: the test above checks where theirs begin.
    """
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in [*(ROOT / "orchestrator").rglob("*.py"), *(ROOT / "templates").glob("[!c]*/*.j2")]
        for line in path.read_text().splitlines()
        if '"-m"' in line or re.search("-m (orchestrator|pip|submitit|training)", line)
        if "`python -m" not in line  # a docstring
    ]
    assert not found, f"use process.module: {found}"
