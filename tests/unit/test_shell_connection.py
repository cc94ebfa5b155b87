"""A shell that the job starts: both ends and the file between them, each a real process on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.terminals import Terminal
from tests.waiting import until
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.process import Streams
from torusrun.orchestrator.beside.shells import opening
from torusrun.orchestrator.beside.shells.addresses import network
from torusrun.orchestrator.job import shell_requests
from torusrun.orchestrator.job.shell_requests import ShellRequest, ShellStarter
from torusrun.orchestrator.schedulers.interface import Reach
from torusrun.orchestrator.schedulers.local.scheduler import Local

OPEN = (
    "import sys; from pathlib import Path; from torusrun.orchestrator.beside.shells.opening import open_shell\n"
    "sys.exit(open_shell(Path(sys.argv[1]), 'here', sys.argv[3:], terminal=sys.argv[2] == 'terminal'))"
)


class HereBySh(Local):
    """This machine as a host of a job whose remote shell is /bin/sh."""

    reach = Reach(remote_command=lambda host, command: ["/bin/sh", "-c", command])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of requests, into which a job looks."""
    with looked_into(ShellStarter(tmp_path / "shells", HereBySh(), sys.executable)) as into:
        yield into


@contextmanager
def looked_into(starter: ShellStarter) -> Iterator[Path]:
    """The folder of this starter, into which it looks meanwhile."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.05):
            starter.look()

    job = threading.Thread(target=look)
    job.start()
    try:
        yield starter.folder
    finally:
        over.set()
        job.join()


def opened(folder: Path, *command: str, text: str = "") -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", OPEN, str(folder), "none", *command]
    return subprocess.run(argv, input=text, capture_output=True, text=True, timeout=60)


def test_a_command_has_its_own_streams_and_its_exit_code(folder: Path) -> None:
    said = opened(folder, "sh", "-c", "cat; echo wrong >&2; exit 7", text="some input")
    assert (said.returncode, said.stdout, said.stderr) == (7, "some input", "wrong\n")
    assert opened(folder, "sh", "-c", "kill -TERM $$").returncode == 128 + signal.SIGTERM
    many = opened(folder, "cat", text="x" * 3_000_000)
    assert many.stdout == "x" * 3_000_000, "much in both directions at once"
    assert list(folder.iterdir()) == [], "requests are removed"


def test_nothing_reads_the_input_once_a_shell_has_ended(folder: Path) -> None:
    """A later file of this process may have the number of its descriptor."""
    (source, typed), (shown, output), before = os.pipe(), os.pipe(), threading.active_count()
    streams = Streams(source, output)
    assert opening.open_shell(folder, "here", ["sh", "-c", "exit 5"], terminal=False, streams=streams) == 5
    assert threading.active_count() == before
    for descriptor in (source, typed, shown, output):
        os.close(descriptor)


def test_a_terminal_hands_on_keys_and_sizes(folder: Path) -> None:
    traps = "trap 'stty size' WINCH; trap 'exit 3' INT"
    script = f"{traps}; stty size; read word; echo on $(tty) $word; while :; do sleep 0.1; done"
    with Terminal(OPEN, str(folder), "terminal", "sh", "-c", script, columns=91, lines=33) as terminal:
        terminal.until("33 91")
        terminal.press("keys\r")
        terminal.until("keys", terminal.until("on /dev/pts/"))
        terminal.resize(101, 44)
        terminal.until("44 101")
        terminal.press("\x03")
        assert terminal.ended() == 3 and terminal.restored


def test_a_terminal_that_does_not_know_its_size_is_one_too(folder: Path) -> None:
    with Terminal(OPEN, str(folder), "terminal", "sh", "-c", "tty; exit 4", columns=0, lines=0) as terminal:
        terminal.until("/dev/pts/")
        assert terminal.ended() == 4


def test_what_it_started_ends_with_the_user(folder: Path) -> None:
    argv = [sys.executable, "-c", OPEN, str(folder), "none", "sh", "-c", "echo $$; exec sleep 1000"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as user:
        assert user.stdout
        pid = int(user.stdout.readline())
        user.kill()
    until(lambda: not Path(f"/proc/{pid}").exists(), "the program to end with its user")


def test_why_it_cannot_be_started_is_reported(folder: Path) -> None:
    class NoShell(HereBySh):
        reach = Reach(remote_command=lambda host, command: ["/no/such/pbs_tmrsh", host])

    asked = ShellRequest("n3", ("true",), (), network(), 1, "00", 0, 0)
    with shell_requests.left(asked, folder) as path:
        failure = until(lambda: shell_requests.failure(path), "the failure to be told")
        assert "cannot be reached on port 1" in failure
    other = ShellStarter(folder.with_name("other"), NoShell(), sys.executable)
    path = asked.write(other.folder)
    other.look()
    assert "/no/such/pbs_tmrsh: cannot be started" in shell_requests.failure(path)
    assert path.stat().st_mode & 0o777 == 0o600, "it holds a secret"


def test_a_shell_for_which_another_leaves_no_room_waits_for_its_turn(tmp_path: Path) -> None:
    class OneAtATime(HereBySh):
        reach = Reach(remote_command=lambda host, command: ["flock", "-n", str(tmp_path), "sh", "-c", command])

    went, here = tmp_path / "went", ["sh", "-c", f"echo here; until test -e {tmp_path}/went; do sleep 0.1; done"]
    with looked_into(ShellStarter(tmp_path / "shells", OneAtATime(), sys.executable)) as folder:
        argv = [sys.executable, "-c", OPEN, str(folder), "none", *here]
        first = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert first.stdout and first.stdout.readline() == b"here\n"
        second = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        until(lambda: shell_requests.lying_in(folder), "the second request")
        assert second.poll() is None
        went.touch()
        assert (first.wait(30), second.wait(30)) == (0, 0)
        assert second.stdout and second.stdout.read() == b"here\n"
        first.stdout.close()
        second.stdout.close()


def test_a_job_that_does_not_answer_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(opening, "WAIT_S", 0.1)
    with pytest.raises(SiteError, match=r"nothing on n3 connected .* within 0.1 s: nodes must reach this address"):
        opening.open_shell(tmp_path, "n3", ["true"], terminal=False)
    assert os.listdir(tmp_path) == []
