"""The scheduler's daemon, as the job that it started sees it."""

import subprocess
from collections.abc import Iterator

import pytest

from tests.waiting import until
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.job.gather import Daemon
from torusrun.orchestrator.run.folder.records import End

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
