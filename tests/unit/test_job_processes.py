"""The end of an attempt whose job's own processes were killed, by what real processes show."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.run_folders import make, write_specs
from tests.waiting import until
from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import proc
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.job import deputy, earlier
from torusrun.orchestrator.job.gather import Daemon
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Started
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.plan.plan import plan
from torusrun.orchestrator.schedulers.interface import Reach
from torusrun.training.checkpoint import writer

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
                if proc.state_of(pid):
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
            until(lambda: proc.parent_of(pids[killed + 1]) != pids[killed], "its child to be adopted", 10)
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
        assert earlier.end_remains(first, of_command) and proc.state_of(mine) in ("", "Z")
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
