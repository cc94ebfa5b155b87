"""This machine as a scheduler: ids that survive reused pids, states from /proc."""

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.waiting import until
from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.schedulers.client import Client
from torusrun.orchestrator.schedulers.interface import Request, Scheduler
from torusrun.orchestrator.schedulers.local.scheduler import Local
from torusrun.orchestrator.schedulers.local.sessions import job_id_of, states

NOTHING = Request("x", 1, 1, 1, 0, None, 60.0, None, None, Path("job.out"), Path("job.err"))


def status(job: str) -> Status:
    return Client(Local(), 120).poll([job])[job]


def state(job: str) -> State:
    return status(job).state


def start(script: Path, text: str, after: tuple[str, ...] = ()) -> str:
    script.write_text(f"#!/usr/bin/env bash\n{text}\n")
    command = Local().submit_command(script, replace(NOTHING, after=after))
    return Local().job_id(process.run(command, timeout_s=120).check("starting").stdout)


def test_a_job_runs_detached_is_seen_and_cancelled(tmp_path: Path) -> None:
    job = start(tmp_path / "job.sh", "echo out; echo err >&2; sleep 600")
    assert state(job) is State.RUNNING
    until(lambda: "err" in (tmp_path / "job.err").read_text(), "its output")
    Client(Local(), 120).cancel(job)
    until(lambda: state(job) is State.LOST, "its end: a local job leaves no accounting, only its own end record")
    assert (tmp_path / "job.out").read_text() == "out\n"


def test_a_job_has_the_users_locale_and_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"LC_ALL": "C.UTF-8", "LANG": "de_DE.UTF-8", "OMPI_MCA_btl": "tcp", "SLURM_MPI_TYPE": "pmix"}
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "job.sh").write_text(f"for name in {' '.join(own)}; do echo ${{!name}}; done; echo end")
    Client(Local(), 120).submit(tmp_path / "job.sh", replace(NOTHING, token="x"))
    until(lambda: "end" in (tmp_path / "job.out").read_text(), "its output")
    assert (tmp_path / "job.out").read_text().split() == [*own.values(), "end"]


def test_many_jobs_cost_one_command(tmp_path: Path) -> None:
    jobs = [start(tmp_path / f"{n}.sh", "sleep 600") for n in range(3)]
    before = process.CALLS.total()
    assert [s.state for s in Client(Local(), 120).poll([*jobs, "999999999.1"]).values()].count(State.RUNNING) == 3
    assert process.CALLS.total() == before + 1
    for job in jobs:
        Client(Local(), 120).cancel(job)


def test_a_job_waits_for_another_under_the_id_that_it_keeps(tmp_path: Path) -> None:
    first = start(tmp_path / "first.sh", "sleep 600")
    second = start(tmp_path / "second.sh", "sleep 600", (first,))
    until(lambda: state(second) is State.PENDING, "a job to wait for another")
    assert "waits for other jobs" in status(second).reason
    Client(Local(), 120).cancel(first)
    until(lambda: state(second) is State.RUNNING, "a job to begin once the one it waits for is gone")
    Client(Local(), 120).cancel(second)


def test_a_reused_pid_is_not_the_job() -> None:
    mine = job_id_of(Path("/proc/self/stat").read_text())
    pid = mine.partition(".")[0]
    assert pid == str(os.getpid())
    assert state(f"{pid}.1") is State.LOST


def test_a_command_name_with_parentheses_and_blanks_is_read(tmp_path: Path) -> None:
    odd = tmp_path / "a) R 1 (b"
    odd.write_bytes(Path("/bin/sleep").read_bytes())
    odd.chmod(0o755)
    child = subprocess.Popen([odd, "600"], start_new_session=True)
    try:
        assert state(job_id_of(Path(f"/proc/{child.pid}/stat").read_text())) is State.RUNNING
    finally:
        child.kill()
        child.wait()


def test_a_job_lives_as_long_as_any_process_of_its_session(tmp_path: Path) -> None:
    job = start(tmp_path / "job.sh", "sleep 601 & sleep 600; true")
    until(lambda: state(job) is State.RUNNING, "the job to begin")
    os.kill(int(job.partition(".")[0]), signal.SIGKILL)
    until(lambda: "the shell of the job, is gone" in status(job).reason, "the shell to be gone")
    assert state(job) is State.RUNNING
    Client(Local(), 120).cancel(job)
    until(lambda: state(job) is State.LOST, "what its shell has left behind to be cancelled")


@pytest.mark.parametrize("name", ["a)\nb", "\n", ") S 1 1 1", "a\n1 (b) S 1 1"])
def test_a_process_may_have_any_name(name: str) -> None:
    rest = "S 1 7 7 0 -1 1 2 3 4 5 6 7 8 9 20 0 1 0 55 66 77"
    assert states(f"7 ({name}) {rest}\n8 (sleep) {rest}\n".splitlines(), ["7.55"])["7.55"].state is State.RUNNING


def test_a_job_that_did_not_start_is_an_error() -> None:
    with pytest.raises(SiteError, match="did not start"):
        Local().job_id("bash: not found")


# A scheduler that is no part of torusrun: found by the name of its class, and never in the working directory.


ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "guides" / "add-a-scheduler.md").read_text()
SPOOLER = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0]


def dry_run(folder: Path, scheduler: str, library: Path) -> subprocess.CompletedProcess[str]:
    library.mkdir(exist_ok=True)
    (library / "spooler.py").write_text(SPOOLER)
    (folder / "site.yaml").write_text(f"scheduler: {scheduler}\nlauncher: spawn\nruns: {folder}/runs\n")
    (folder / "run.yaml").write_text("name: x\nsite: ./site.yaml\ncode: none\ncommand: [pwd]\n")
    env = {**os.environ, "PYTHONPATH": f"{ROOT}/src:{folder / 'library'}", "HOME": str(folder)}
    argv = [sys.executable, "-m", "torusrun", "submit", "run.yaml", "--dry-run"]
    return subprocess.run(argv, cwd=folder, env=env, text=True, capture_output=True, timeout=240)


def test_a_site_names_a_class_of_its_own(tmp_path: Path) -> None:
    said = dry_run(tmp_path, "spooler:Spooler", tmp_path / "library")
    assert said.returncode == 0, said.stderr
    assert "export SPOOLER_JOB=" in said.stdout and "export SUBMITIT_EXECUTOR=spooler:Spooler" in said.stdout


@pytest.mark.parametrize(
    ("scheduler", "told"),
    [
        ("spooler:Nothing", "cannot be imported by"), ("pathlib:Path", "is not a subclass of"),
        ("os:sep", "is not a subclass of"), ("spooler", "there is no scheduler 'spooler'"),
    ],
)  # fmt: skip
def test_an_unusable_scheduler_class_is_refused_with_file_and_line(scheduler: str, told: str, tmp_path: Path) -> None:
    said = dry_run(tmp_path, scheduler, tmp_path / "library")
    assert said.returncode == 2 and "site.yaml:1:12: " in said.stderr and told in said.stderr, said.stderr


def test_nothing_is_imported_from_the_working_directory(tmp_path: Path) -> None:
    said = dry_run(tmp_path, "spooler:Spooler", tmp_path)
    assert said.returncode == 2 and "No module named 'spooler'" in said.stderr, said.stderr


class Half(Scheduler):
    """A scheduler that is not written to its end."""

    name = "half"


def test_a_class_that_is_not_whole_is_refused_with_what_it_lacks() -> None:
    with pytest.raises(UserError, match="'tests.unit.test_local:Half' lacks cancel_command, .*, variables$"):
        schedulers.get("tests.unit.test_local:Half")
