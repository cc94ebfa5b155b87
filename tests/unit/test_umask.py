"""Who may read the files of a run: the site's umask, and what it never opens."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.unit.run_folders import DONE, make, write_specs
from tests.unit.test_private import NAMED_USER, access_list
from torusrun.orchestrator.base import private
from torusrun.orchestrator.keys.kinds import UMASK
from torusrun.orchestrator.run.attempts import create
from torusrun.orchestrator.run.attempts.script import script
from torusrun.orchestrator.run.folder.events import Submitting
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.attempt_plan import AttemptPlan
from torusrun.orchestrator.run.plan.plan import Plan, plan
from torusrun.orchestrator.upkeep.collect import collect

GROUP = 4322
READER = 4321
ALLOWED = {f"0{group}{others}" for group in "2367" for others in "2367"}


def with_umask(home: Path, umask: str, more: str = "") -> Path:
    """A run file beside the folder of runs, whose site has this umask and these lines."""
    (home / "work").mkdir()
    run = write_specs(home / "work", home / "runs")
    with open(home / "work/site.yaml", "a") as site:
        site.write(f"umask: {umask}\n{more}")
    return run


def made(planned: Plan) -> RunFolder:
    """The run folder of a plan, as the client makes it."""
    first = AttemptPlan(1, planned)
    texts = script(first, RunFolder(planned.folder).attempt(1))
    return create.run(first, planned.folder.parent, texts, Submitting(1, planned.run_id))


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_the_owner_keeps_all_rights_and_nobody_else_may_write() -> None:
    for text in (f"{number:03o}" for number in range(0o1000)):
        if text in ALLOWED:
            assert UMASK.write(UMASK.parse(text)) == text and UMASK.parse(f"0{text}") == int(text, 8)
        else:
            with pytest.raises(ValueError, match="is not a umask; write 077"):
                UMASK.parse(text)


@pytest.mark.parametrize("text", ["", "27", "23", "0o027", "00027", "1027", "-027", "u=rwx,g=rx", "027 ", "٠٢٧"])
def test_a_umask_is_three_octal_digits(text: str) -> None:
    with pytest.raises(ValueError, match="is not a umask"):
        UMASK.parse(text)


@pytest.mark.parametrize("quoted", ["027", '"027"'])
def test_a_run_is_as_open_as_its_site_says_whatever_the_umask_of_the_caller(home: Path, quoted: str) -> None:
    planned = plan(with_umask(home, quoted))
    with private.umask(0):
        run = made(planned)
        assert os.umask(0) == 0, "the caller keeps his umask"
    opened = {str(path.relative_to(run.folder)): mode(path) for path in run.folder.rglob("*")}
    assert opened == {
        "run.yaml": 0o640, "provenance.json": 0o640, "plan.json": 0o640, "ledger.jsonl": 0o640, "attempts": 0o750,
        "attempts/1": 0o750, "attempts/1/plan.json": 0o640, "attempts/1/job.sh": 0o640,
        "attempts/1/.end.json.reserve": 0o640,
    }  # fmt: skip
    assert (mode(run.folder), mode(run.folder.parent)) == (0o750, 0o750)
    assert "\numask 027\n" in run.attempt(1).script.read_text()


def holding(folder: Path, secret: str) -> dict[str, int]:
    """The files below a folder that hold a text, with their modes."""
    found = [path for path in folder.rglob("*") if path.is_file() and secret in path.read_text()]
    return {str(path.relative_to(folder)): mode(path) for path in found}


def test_files_with_values_of_env_stay_the_owners_alone(home: Path, tmp_path: Path) -> None:
    spec = with_umask(home, "022", "env: {KEY: very-secret}\n")
    spec.write_text("name: made\nsite: ./site.yaml\ncommand: ['true']\nenv: {OTHER: very-secret}\n")
    (spec.parent / "again.yaml").hardlink_to(spec)
    run = made(plan(spec))
    copies = {f"code/{name}" for name in ("run.yaml", "again.yaml", "site.yaml")}
    assert holding(run.folder, "very-secret") == dict.fromkeys(
        copies | {"run.yaml", "plan.json", "attempts/1/plan.json", "attempts/1/job.sh"}, 0o600
    )
    assert mode(run.ledger) == 0o644 and mode(run.code / "python") == 0o755
    into = collect(run, tmp_path / "kept", "all")
    assert holding(into, "very-secret") == holding(run.folder, "very-secret")


@pytest.mark.parametrize("owner", ["run", "site"])
@pytest.mark.parametrize(
    ("line", "private"),
    [("export HF_TOKEN=hf_very-secret", True), ("curl -H 'Authorization: token very-secret' x", True),
     ("mkdir -p very-secret", False)],
)  # fmt: skip
def test_files_with_secrets_in_setup_stay_the_owners_alone(home: Path, owner: str, line: str, private: bool) -> None:
    setup = f"setup: [{json.dumps(line)}]\n"
    spec = with_umask(home, "027", setup if owner == "site" else "")
    spec.write_text(f"name: made\nsite: ./site.yaml\ncommand: ['true']\n{setup if owner == 'run' else ''}")
    run = made(plan(spec))
    found = holding(run.folder, "very-secret")
    assert {"plan.json", "attempts/1/plan.json", "attempts/1/job.sh"} <= {*found}
    assert {*found.values()} == {0o600 if private else 0o640}


@pytest.mark.needs("lists")
def test_an_access_list_of_the_folder_of_runs_opens_no_run(home: Path) -> None:
    spec = with_umask(home, "077")
    spec.write_text("name: made\nsite: ./site.yaml\ncommand: ['true']\n")
    (home / "runs").mkdir(mode=0o700)
    os.setxattr(home / "runs", "system.posix_acl_default", access_list(NAMED_USER))
    run = made(plan(spec))
    for path in (run.folder, *run.folder.rglob("*")):
        assert not path.stat().st_mode & 0o077, path
        assert not [name for name in os.listxattr(path) if "posix_acl" in name], path


def test_code_that_names_no_variables_is_as_open_as_it_was(home: Path) -> None:
    spec = with_umask(home, "022")
    spec.write_text("name: made\nsite: ./site.yaml\ncommand: ['true']\n")
    assert mode(made(plan(spec)).code / "run.yaml") == 0o644


@pytest.fixture
def finished(home: Path) -> RunFolder:
    """A run of our training under umask 022, which reads its configuration, with what its ranks write."""
    with private.umask(0o022):
        return make(with_umask(home, "022"), DONE)


def test_the_token_of_an_attempt_stays_the_owners_alone(finished: RunFolder) -> None:
    attempt = finished.attempt(1)
    assert mode(attempt.config) == mode(attempt.launch) == 0o600
    token = attempt.config.read_text().partition('"token": "')[2].partition('"')[0]
    assert len(token) == 64
    holding = [path for path in finished.folder.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]
    assert holding == [attempt.config]
    for path in (attempt.logs, attempt.ranks, finished.checkpoints):
        assert mode(path) == 0o755, path
    for path in (attempt.rank_log(0), attempt.placement, attempt.end, finished.metrics, attempt.done, finished.ledger):
        assert mode(path) == 0o644, path


def test_a_collected_file_is_as_open_as_the_runs_own(finished: RunFolder, tmp_path: Path) -> None:
    finished.attempt(1).rank_log(1).chmod(0o666)
    with private.umask(private.UMASK):
        into = collect(finished, tmp_path / "kept", "all")
    for path in (into, *into.rglob("*")):
        source = finished.folder / path.relative_to(into)
        assert mode(path) == mode(source) & ~0o022, path
    assert mode(into / "attempts/1/config.json") == 0o600


@pytest.mark.needs("users")
def test_the_group_of_the_folder_of_runs_reads_logs_and_no_token(home: Path) -> None:
    """The folder of runs has set-group-ID, as the folders of projects have."""
    (home / "runs").mkdir()
    os.chown(home / "runs", -1, GROUP)
    (home / "runs").chmod(0o2750)
    spec = with_umask(home, "027")
    with private.umask(0o027):
        run = make(spec, DONE)

    def reads(path: Path, group: int) -> bool:
        """Whether another user of this group can, once he is in the folder of runs."""
        relative = str(path.relative_to(home / "runs"))
        shell = ["sh", "-c", 'cd "$1" && exec setpriv --reuid "$2" --regid "$2" --groups "$3" cat "$4"', "sh"]
        said = subprocess.run(
            [*shell, str(home / "runs"), str(READER), str(group), relative], capture_output=True, timeout=300
        )
        assert said.returncode == 0 or b"Permission denied" in said.stderr, said.stderr
        return said.returncode == 0

    attempt = run.attempt(1)
    for path in (attempt.rank_log(0), attempt.stdout, attempt.script, run.plan, run.ledger, run.metrics):
        assert reads(path, GROUP) and not reads(path, READER), path
    assert not reads(attempt.config, GROUP) and not reads(attempt.launch, GROUP)
