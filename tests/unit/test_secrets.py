"""Where secret variables come from, what is refused, and how they reach an image and a login node."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.run_folders import write_specs
from tests.unit.test_remote_verbs import SITE
from tests.unit.verbs import Capsys, Patch
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.images.command import ContainerExec, SecretVariables, inside
from torusrun.orchestrator.images.runtime import Runtime
from torusrun.orchestrator.keys.problems import SpecError
from torusrun.orchestrator.keys.shared import Secret
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.place.placement.mapping import place
from torusrun.orchestrator.run.folder import kept_secrets
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.without_secrets import is_secret_variable
from torusrun.orchestrator.run.plan import attempt_plan, secret_values
from torusrun.orchestrator.run.plan.job_request import of_site, request
from torusrun.orchestrator.run.plan.plan import Plan, plan
from torusrun.orchestrator.run.plan.plan_files import read_first
from torusrun.orchestrator.run.program.what_runs import master_environment, ranks_environment
from torusrun.orchestrator.schedulers import client
from torusrun.orchestrator.schedulers.local.scheduler import Local

VALUE = "hidden-planted4711"


@pytest.fixture
def file(home: Path) -> Path:
    (home / "kept").mkdir()
    (home / "kept/key").write_text(f"{VALUE}\n")
    (home / "kept/key").chmod(0o600)
    return home / "kept/key"


def planned(home: Path, **env: object) -> Plan:
    spec = write_specs(home)
    spec.write_text(f"{spec.read_text()}env: {json.dumps(env)}\n")
    return plan(spec)


def test_a_secret_is_the_text_of_a_private_file_or_a_variable_of_the_shell(
    home: Path, file: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("B", "of the shell\n")
    made = planned(home, A={"from": "~/kept/key"}, B={"from_shell": True}, C="plain")
    assert made.environment == {"C": "plain"} and made.secrets["A"] == Secret("~/kept/key")
    assert secret_values.read(made) == {"A": VALUE, "B": "of the shell\n"}
    assert VALUE not in json.dumps(made.as_json())


def test_a_kept_plan_has_the_sources_of_its_secrets(home: Path, file: Path) -> None:
    made = planned(home, A={"from": str(file)}, B={"from_shell": True})
    run = RunFolder(made.folder)
    run.folder.mkdir(parents=True)
    run.plan.write_text(json.dumps(made.as_json()))
    assert read_first(run, 1).secrets == made.secrets


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        (b"x", 0o644, "chmod 600"), (b"x", 0o620, "chmod 600"), (b"\xff", 0o600, "not UTF-8"), (b"\n", 0o600, "empty"),
        (b"a\0b", 0o600, "NUL"), (b"x" * 40_000, 0o600, "more than 30000"), (None, 0, "cannot be read"),
    ],
)  # fmt: skip
def test_a_file_that_others_may_read_or_that_holds_no_value_is_refused(
    home: Path, file: Path, content: bytes | None, mode: int, why: str
) -> None:
    file.unlink()
    if content is not None:
        file.write_bytes(content)
        file.chmod(mode)
    with pytest.raises(UserError, match=rf"'env.A': .*{why}") as refused:
        secret_values.read(planned(home, A={"from": str(file)}))
    assert "xx" not in str(refused.value), "no message may show a value"


def test_a_variable_that_the_shell_lacks_is_named_and_a_file_that_is_open_to_others(
    home: Path, monkeypatch: Patch, tmp_path: Path
) -> None:
    monkeypatch.delenv("A", raising=False)
    with pytest.raises(UserError, match="this shell has no variable A; export it"):
        secret_values.read(planned(home, A={"from_shell": True}))
    (tmp_path / "public").write_text("x")
    with pytest.raises(UserError, match="public is open to other users; write it into a file that only you can read"):
        secret_values.read(planned(home, A={"from": str(tmp_path / "public")}))


@pytest.mark.needs("users")
def test_a_file_of_another_user_is_refused(home: Path, file: Path) -> None:
    os.chown(file, 12345, -1)
    with pytest.raises(UserError, match="another user"):
        secret_values.read(planned(home, A={"from": str(file)}))


def test_a_secret_in_the_code_is_refused_since_the_code_is_copied(home: Path, file: Path) -> None:
    spec = write_specs(home)
    spec.write_text(f"name: x\nsite: ./site.yaml\ncommand: ['true']\nenv: {{A: {{from: {file}}}}}\n")
    with pytest.raises(UserError, match="copied with the run; move it"):
        secret_values.read(plan(spec))


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({"A": {}}, "'env.A' must have one source"),
        ({"A": {"from": "/x", "from_shell": True}}, "'env.A' must have one source"),
        ({"A": {"from": "x"}}, "not an absolute path"),
        ({"A": {"frm": "/x"}}, "did you mean 'from'"),
        ({"PYTHONPATH": {"from": "/x"}}, "cannot be a secret"),
        ({"A": ["x"]}, "must be an environment variable's value, not a list"),
    ],
)
def test_each_mistake_is_said_with_its_place(home: Path, env: dict[str, object], why: str) -> None:
    with pytest.raises(SpecError, match=rf"run.yaml:6:\d+: .*{re.escape(why)}"):
        planned(home, **env)


def test_no_variable_of_torchruns_contract_can_be_set(home: Path) -> None:
    """Each rank gets them with other values, so that a user's value would be lost without a word."""
    placement = place(Grid((2, 2)), ["one"], 4)
    given = {**ranks_environment(placement, 0, "run", 1), **master_environment(placement, 0, "host", 1)}
    for name in given:
        with pytest.raises(SpecError, match=rf"{name}.*torusrun") as refused:
            planned(home, **{name: "1"})
        assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("version", [(1, 4, 5), (1, 0, 0)])
@pytest.mark.parametrize("value", ["plain", 'it\'s\n"two" $HOME', "é\t\U0001f511\r\nend\n", "`id`"])
def test_an_image_gets_every_value_from_its_environment_or_the_one_file(
    home: Path, value: str, version: tuple[int, ...]
) -> None:
    """The words after the image are run here by a real shell, with the variables that the runtime would pass."""
    run = RunFolder(home)
    kept_secrets.keep(run, {"A": value})
    own_file = home / "0000.env"
    secret = SecretVariables(kept_secrets.kept(run, ["A"]), str(run.secrets))
    container = ContainerExec(Runtime("apptainer", "apptainer", version), "/x.sif")
    started = inside(container, ["env", "-0"], {"B": "own\tvalue"}, {}, str(own_file), secret)
    own_file.write_text(started.file_text)
    passed = {name.removeprefix("APPTAINERENV_"): text for name, text in started.environment.items()}
    program = started.argv[started.argv.index("/x.sif") + 1 :]
    said = subprocess.run(program, env={"PATH": os.defpath, **passed}, capture_output=True, timeout=300, check=True)
    seen = dict(word.split("=", 1) for word in said.stdout.decode().split("\0") if word)
    assert (seen["A"], seen["B"]) == (value, "own\tvalue")
    assert "A=" not in started.file_text and value not in " ".join(started.argv), "the value may be in no second file"


def test_a_rank_without_the_file_of_its_secrets_does_not_start(home: Path) -> None:
    with pytest.raises(SiteError, match="cannot be read.*submit a new run"):
        kept_secrets.kept(RunFolder(home), ["A"])
    kept_secrets.keep(RunFolder(home), {"B": "x"})
    with pytest.raises(SiteError, match="no value of A"):
        kept_secrets.kept(RunFolder(home), ["A"])
    assert kept_secrets.kept(RunFolder(home / "none"), []) == {}


def test_no_job_inherits_a_secret_from_the_shell_of_submit(home: Path, monkeypatch: Patch) -> None:
    """Slurm keeps the environment of its submit command; `setup`, the preflight and notices would have it, too."""
    monkeypatch.setenv("A", VALUE)
    monkeypatch.setenv("B", "of the shell")
    monkeypatch.setattr(Local, "submit_command", lambda *words: ["sh", "-c", f"env > {home}/seen"])
    monkeypatch.setattr(Local, "job_id", lambda *words: "9")
    made = planned(home, A={"from_shell": True})
    asked = request(attempt_plan.first(made), RunFolder(made.folder).attempt(1))
    client.of(made.site).submit(home / "job.sh", asked)
    seen = (home / "seen").read_text()
    assert "B=of the shell" in seen and VALUE not in seen


def test_no_other_command_that_reads_a_script_inherits_a_secret_of_the_site(home: Path, monkeypatch: Patch) -> None:
    """A build's job, doctor's requests, and the question whether a job could run."""
    monkeypatch.setenv("A", VALUE)
    monkeypatch.setattr(Local, "ask_command", lambda *words: ["sh", "-c", "env"])
    site = replace(planned(home).site, env={"A": Secret(from_shell=True), "B": "plain"})
    asked = of_site(site, 1, 1, name="build", time_s=60.0, stdout=home / "out", stderr=home / "err")
    assert asked.secrets == ("A",)
    assert VALUE not in client.of(site).ask("true", asked)


def test_a_login_node_gets_the_values_of_this_machine(
    home: Path, far: Path, file: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    monkeypatch.setenv("B", "of-my-shell-planted4712")
    folder = home / "project"
    folder.mkdir()
    (folder / "site.yaml").write_text(SITE)
    text = f"name: asked\nsite: ./site.yaml\ncommand: ['true']\nenv: {{A: {{from: {file}}}, B: {{from_shell: true}}}}\n"
    (folder / "run.yaml").write_text(text)
    assert main(["submit", str(folder / "run.yaml"), "--dry-run"]) == 0, capsys.readouterr().err
    said = capsys.readouterr()
    assert "A='<from the shell" in said.out and "planted47" not in said.out + said.err
    assert main(["submit", str(folder / "run.yaml")]) == 0, capsys.readouterr().err
    (run,) = (far / "torusrun/runs").glob("asked-*")
    assert kept_secrets.kept(RunFolder(run), ["A", "B"]) == {"A": VALUE, "B": "of-my-shell-planted4712"}
    files = [path for path in far.rglob("*") if path.is_file() and not path.is_symlink()]
    holding = [path.name for path in files if b"planted4711" in path.read_bytes()]
    assert holding == [".secrets.env"], "the request of a submission must be removed there"


@pytest.mark.parametrize(
    ("names", "secret"),
    [
        (
            "HF_TOKEN WANDB_API_KEY AWS_SECRET_ACCESS_KEY PGPASSWORD MYSQL_PWD DB_PASS githubToken NETRC_CREDENTIALS",
            True,
        ),
        ("SENTRY_DSN SLACK_WEBHOOK CI_JOB_PAT apikey AZURE_STORAGE_KEY", True),
        ("LR MODE MAX_TOKENS TOKENIZERS_PARALLELISM SORT_KEY PATH COMPASS AUTHOR PASSES KEYS NCCL_DEBUG", False),
    ],
)
def test_the_name_of_a_variable_says_that_it_is_secret(names: str, secret: bool) -> None:
    assert [name for name in names.split() if is_secret_variable(name) != secret] == []
