"""The gateway to other programs, and the processes of a job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.run_folders import make, write_specs
from tests.unit.verbs import Patch
from tests.waiting import until
from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import proc, process
from torusrun.orchestrator.base.environment import clean_environment, jobs_environment, which
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.job import deputy, earlier
from torusrun.orchestrator.job.gather import Daemon
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Started
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.plan.plan import plan
from torusrun.orchestrator.schedulers import KNOWN
from torusrun.orchestrator.schedulers.interface import Reach
from torusrun.training.checkpoint import writer


def test_a_program_that_does_not_end_is_given_up() -> None:
    with pytest.raises(process.NoAnswer, match=r"did not answer within 0\.2 s"):
        process.run(["sleep", "20"], timeout_s=0.2)


def test_what_a_program_that_does_not_end_has_started_ends_with_it(tmp_path: Path) -> None:
    script = f"sleep 1000 & echo $! > {tmp_path}/pid; wait"
    for timeout_s in (0.5, 2.0, 8.0, 32.0):  # a busy machine needs longer to start its child
        with pytest.raises(process.NoAnswer):
            process.run(["sh", "-c", script], timeout_s=timeout_s)
        if pid := (tmp_path / "pid").read_text() if (tmp_path / "pid").exists() else "":
            break
    until(lambda: proc.state_of(int(pid)) in ("", "Z"), "its child to end")


def test_what_cannot_be_started_is_named(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="no-such-program: not found on this machine"):
        process.run(["no-such-program"], timeout_s=1)
    with pytest.raises(SiteError, match="/gone: this folder is missing"):
        process.run(["true"], timeout_s=300, cwd=tmp_path / "gone")
    (tmp_path / "sinfo").write_bytes(b"\x7fELF, and no more")
    (tmp_path / "sinfo").chmod(0o700)
    with pytest.raises(SiteError, match="sinfo: cannot be started: Exec format error"):
        process.run([tmp_path / "sinfo"], timeout_s=300)


def test_a_program_that_is_in_no_folder_of_path_is_reported_with_what_to_do(tmp_path: Path) -> None:
    """A job's PATH is seldom the one of the shell that submitted it."""

    def start(program: str, cwd: Path) -> str:
        with pytest.raises(SiteError) as told:
            process.start([program], environment={"PATH": str(tmp_path)}, cwd=cwd, parent_death=signal.SIGKILL)
        return str(told.value)

    assert start("nosuch", tmp_path).startswith("nosuch: cannot be started: it is in no folder of PATH; give its full ")
    assert start("/nosuch", tmp_path) == "/nosuch: cannot be started: No such file or directory"
    assert start("nosuch", tmp_path / "gone") == "nosuch: cannot be started: No such file or directory"


def test_what_a_program_said_is_in_the_error_of_much_the_beginning_and_the_end() -> None:
    failed = process.run([sys.executable, "-c", "import sys; sys.exit('queue is closed')"], timeout_s=300)
    with pytest.raises(SiteError, match="submitting: .* ended with exit code 1: queue is closed"):
        failed.check("submitting")
    said = "the cause\n" + 100_000 * "x" + "\nthe end"
    with pytest.raises(SiteError, match=r"(?s)1: the cause.*x \[\.\.\.\] x.*the end$") as told:
        process.Finished(("sbatch",), 1, "", said).check("submitting")
    assert len(str(told.value)) < 5000


def test_arguments_reach_the_program_as_they_are() -> None:
    hostile = "$(id) `id` \"'\n;|&"
    said = process.run([sys.executable, "-c", "import sys; sys.stdout.write(sys.argv[1])", hostile], timeout_s=300)
    assert said.stdout == hostile


def test_what_an_enclosing_job_set_does_not_leak() -> None:
    inherited = {
        "SLURM_CPU_BIND": "x", "PMIX_RANK": "3", "OMPI_MCA_x": "y", "SQUEUE_PARTITION": "debug",
        "SCANCEL_STATE": "PENDING", "SACCT_FORMAT": "User", "SINFO_PARTITION": "debug", "SLURM_CONF": "/etc/s.conf",
        "PATH": "/bin",
    }  # fmt: skip
    assert clean_environment(inherited) == {"SLURM_CONF": "/etc/s.conf", "PATH": "/bin", "LC_ALL": "C"}


OWN = {
    "LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8", "OMPI_MCA_btl": "tcp,self", "PE_ENV": "GNU", "PMI_DEBUG": "1",
    "SLURM_MPI_TYPE": "pmix", "SLURM_CPU_BIND": "none", "PBS_HOME": "/opt/pbs", "SQUEUE_FORMAT": "%i", "JOB_ID": "mine",
}  # fmt: skip


@pytest.mark.parametrize(
    ("outer", "lost"),
    [
        ({}, set()),
        ({"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1"}, {"SLURM_MPI_TYPE", "SLURM_CPU_BIND"}),
        ({"PBS_JOBID": "7.s", "PBS_NODEFILE": "/x"}, {"PBS_HOME"}),
        ({"SGE_TASK_ID": "undefined", "PE_HOSTFILE": "/x", "SGE_O_HOST": "login"}, {"JOB_ID"}),
        ({"OMPI_COMM_WORLD_RANK": "1", "PMIX_ID": "x"}, {"OMPI_MCA_btl", "PMI_DEBUG"}),
        ({"PMI_RANK": "1"}, {"PMI_DEBUG"}),
    ],
    ids=["none", "slurm", "pbs", "gridengine", "openmpi", "pmi"],
)
def test_a_job_gets_the_users_own_variables_but_nothing_of_an_outer_job(outer: dict[str, str], lost: set[str]) -> None:
    ours = {"TORUSRUN_RANK": "0", "SUBMITIT_EXECUTOR": "x", "SBATCH_PARTITION": "debug"}
    kept = {name: value for name, value in OWN.items() if name not in lost}
    always = {"SLURM_CONF": "/etc/s.conf", "SGE_ROOT": "/sge", "TORUSRUN_RUNS": "/runs"}
    assert jobs_environment({**OWN, **outer, **ours, **always}) == {**kept, **always}


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_every_variable_that_selects_a_cluster_reaches_its_commands(name: str) -> None:
    selecting = dict.fromkeys(schedulers.get(name).variables.cluster, "there")
    lost = selecting.keys() - clean_environment(selecting).keys()
    assert not lost, f"{lost}: add them to base.environment.KEPT, or declare them in `elsewhere`"


def test_the_environment_of_a_login_shell_has_what_the_profile_sets(home: Path, monkeypatch: Patch) -> None:
    (home / ".profile").write_text("echo Welcome\nexport PATH=/opt/slurm/bin:$PATH LINES='a\nb' PYTHONPATH=/theirs\n")
    monkeypatch.setenv("SHELL", "/bin/sh")
    monkeypatch.setenv("PYTHONPATH", "/ours")
    found = process.login_environment()
    assert found["PATH"].startswith("/opt/slurm/bin:") and found["LINES"] == "a\nb"
    assert found["PYTHONPATH"] == "/ours:/theirs"
    monkeypatch.setenv("SHELL", "/no/such/shell")
    assert process.login_environment()["HOME"] == str(home)


@pytest.mark.parametrize("path", ["", ":", ".", "bin", "../bin::"])
def test_a_path_of_the_working_directory_alone_finds_no_program_there(
    path: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    for folder in (tmp_path, tmp_path / "bin"):
        folder.mkdir(exist_ok=True)
        (folder / "planted").write_text("#!/bin/sh\n")
        (folder / "planted").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", path)
    assert which("planted") is None and which("sh") is not None
    with pytest.raises(SiteError, match="planted: not found"):
        process.run(["planted"], timeout_s=300)
    with pytest.raises(SiteError, match="not found"):
        process.run(["sh", "-c", "planted"], timeout_s=300).check("starting")


# The end of an attempt whose job's own processes were killed, by what real processes show.


SUPERVISOR = """
import signal, sys
from pathlib import Path
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.job.stop_requests import StopRequests
run = RunFolder(Path(sys.argv[1]))
requests = StopRequests(run, run.attempt(1))
print("ready", flush=True)
while not requests.told:
    signal.pause()
print(requests.told.state.value, requests.told.reason, flush=True)
"""


@contextmanager
def job(folder: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A shell, a shell below it, and a supervisor: the job's output, and the three processes. None is left."""
    inner = f"{sys.executable} -c '{SUPERVISOR}' {folder}; true"
    outer = ["sh", "-c", 'sh -c "$1"; true', "sh", inner]
    with subprocess.Popen(outer, stdout=subprocess.PIPE, text=True, start_new_session=True) as started:
        assert started.stdout and started.stdout.readline() == "ready\n"
        pids = proc.descendants(started.pid)
        try:
            yield started, pids
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("killed", "says"),
    [
        (None, "CANCELLED received SIGTERM from outside"),
        (0, "FAILED a process of its job above the ranks was killed, and they were stopped"),
        (1, "FAILED a process of its job above the ranks was killed, and they were stopped"),
    ],
)
def test_a_job_without_one_of_its_processes_is_not_cancelled(killed: int | None, says: str, tmp_path: Path) -> None:
    with job(tmp_path) as (started, pids):
        if killed is not None:
            os.kill(pids[killed], signal.SIGKILL)
            until(lambda: proc.parent_of(pids[killed + 1]) != pids[killed], "its child to be adopted")
        os.kill(pids[2], signal.SIGTERM)
        assert started.stdout and started.stdout.readline() == f"{says}\n"


class Reached(schedulers.get("slurm").__class__):  # type: ignore[misc]
    """A scheduler that runs a command on this machine, in place of another host."""

    reach = Reach(remote_command=lambda host, command: ["sh", "-c", command])


class Unreached(Reached):
    reach = Reach(remote_command=lambda host, command: ["sh", "-c", "exit 1"])


@pytest.mark.parametrize(
    ("supervisor_s", "scheduler", "lives"),
    [(0.0, Unreached(), False), (0.0, Reached(), True), (60.0, Unreached(), True)],
)
def test_a_deputy_blames_no_host_that_lives(supervisor_s: float, scheduler: Reached, lives: bool, home: Path) -> None:
    run = make(write_specs(home), End(State.FAILED, "made"))
    attempt = run.attempt(1)
    attempt.end.unlink()
    ledger.append(run.ledger, Started(1, "7_0", ("n1", "n2"), (4,)))
    attempt.pulse.write_text("n1\n")
    attempt.jobs_pulse.touch()
    os.utime(attempt.jobs_pulse, (1000.0, 1000.0))
    os.utime(attempt.pulse, (1000.0 + supervisor_s,) * 2)
    assert deputy.host_lives(attempt, attempt, scheduler) is lives
    deputy._record(run, "7_0", 50.0, lives=lives)
    end = End.read(attempt.end)
    assert end and (end.hosts, end.state) == (((), State.FAILED) if lives else (("n1",), State.NODE_FAIL))
    assert deputy._lost(run) == 1


DAEMONS = {  # each prints its pid
    "in a session of its own": "setsid sh -c 'echo $$; exec sleep 600' &",
    "that forks twice": f"""{sys.executable} -c 'import os, time
for _ in range(2):
    if os.fork(): os._exit(0)
    os.setsid() if _ == 0 else None
print(os.getpid(), flush=True); time.sleep(600)'""",
    "that ignores SIGTERM": "setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 600; done' &",
}


@pytest.mark.parametrize("kind", DAEMONS)
def test_a_daemon_of_a_command_ends_with_its_attempt_and_others_stay(
    kind: str, home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(earlier, "GRACE_S", ((signal.SIGTERM, 0.3), (signal.SIGKILL, 5.0)))
    planned = plan(write_specs(home))
    of_command = replace(planned, run=replace(planned.run, command=("mine",)))
    first, second = (RunFolder(planned.folder).attempt(number) for number in (1, 11))

    def left_by(attempt: Attempt) -> int:
        environment = {**os.environ, "TORUSRUN_HEARTBEAT": str(attempt.heartbeat)}
        with subprocess.Popen(["sh", "-c", DAEMONS[kind]], stdout=subprocess.PIPE, env=environment) as shell:
            assert shell.stdout
            return int(shell.stdout.readline())

    mine, other = left_by(first), left_by(second)
    try:
        assert not earlier.end_remains(first, planned) and proc.state_of(mine), "our training leaves none"
        assert earlier.end_remains(first, of_command)
        until(lambda: proc.state_of(mine) in ("", "Z"), "its end: a process that dies loses its environment first")
        assert f"left processes, which were ended: {mine}" in capfd.readouterr().out
        assert proc.state_of(other) not in ("", "Z"), "it is of another attempt"
        assert not earlier.end_remains(first, of_command)
    finally:
        for pid in proc.descendants(other):
            os.kill(pid, signal.SIGKILL)


def test_the_writer_of_a_scripts_checkpoint_is_no_remains_of_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plan(write_specs(home))
    attempt = RunFolder(planned.folder).attempt(1)
    monkeypatch.setenv("TORUSRUN_HEARTBEAT", str(attempt.heartbeat))
    writing = writer.start_anew()
    assert not earlier.end_remains(attempt, replace(planned, run=replace(planned.run, command=("mine",))))
    writing.close()


# The scheduler's daemon, as the job that it started sees it.


STOPPED = End(State.CANCELLED, "the ranks were told to stop from outside", certain=False)


@pytest.fixture
def daemon() -> Iterator[tuple[subprocess.Popen[str], Daemon]]:
    """A process, and what it started in a session of its own, which outlives it until its pipe is closed."""
    script = "setsid sh -c 'echo $$; read line' <&3 & wait"
    started = subprocess.Popen(
        ["sh", "-c", f"exec 3<&0; {script}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert started.stdout and started.stdin
    yield started, Daemon(int(started.stdout.readline()))
    started.stdin.close()
    started.kill()
    started.wait()
    started.stdout.close()


def test_an_end_is_blamed_on_a_daemon_that_is_gone(daemon: tuple[subprocess.Popen[str], Daemon]) -> None:
    process, seen = daemon
    assert seen.blamed(STOPPED, "n1") == STOPPED
    process.kill()
    process.wait()
    until(lambda: seen.gone, "the daemon to be gone")
    end = seen.blamed(STOPPED, "n1")
    assert (end.state, end.certain) == (State.NODE_FAIL, False)
    assert end.reason.startswith("the scheduler's daemon on ") and end.reason.endswith(STOPPED.reason)
    for certain in (End(State.FAILED, "rank 1 failed"), End(State.COMPLETED, "all ranks ended well")):
        assert seen.blamed(certain, "n1") == certain
