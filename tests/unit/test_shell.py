"""Shells beside ranks: how each scheduler gets there, what the shell is given, and its connection."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.run_folders import DONE, make, write_specs
from tests.unit.terminals import Terminal
from tests.waiting import until
from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import write_json
from torusrun.orchestrator.base.process import Streams
from torusrun.orchestrator.beside.shells import opening
from torusrun.orchestrator.beside.shells.addresses import network
from torusrun.orchestrator.cli.main import _parse
from torusrun.orchestrator.job import shell_requests
from torusrun.orchestrator.job.ranks.beside_rank import beside
from torusrun.orchestrator.job.shell_requests import ShellRequest, ShellStarter
from torusrun.orchestrator.run.folder.allocation import KeeperState
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.schedulers.client import ssh
from torusrun.orchestrator.schedulers.interface import Reach
from torusrun.orchestrator.schedulers.local.scheduler import Local

WORDS = st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20), min_size=1)


@given(WORDS)
def test_a_command_stays_the_words_that_it_was(words: list[str]) -> None:
    slurm = schedulers.get("slurm").reach.shell_command("7", "n3", words, terminal=False)
    assert slurm[-len(words) :] == words
    assert shlex.split(ssh("n3", words, terminal=False)[-1]) == words
    local = schedulers.get("local").reach.shell_command("7.1", "here", words, terminal=True)
    assert local == words


def test_slurm_is_asked_for_a_terminal_and_the_others_jobs_start_one() -> None:
    command = schedulers.get("slurm").reach.shell_command("7", "n3", ["w"], terminal=True)
    assert {"--pty", "--overlap", "--nodelist=n3"} <= set(command)
    assert [name for name in schedulers.KNOWN if schedulers.get(name).reach.from_inside] == ["pbs", "gridengine"]


@pytest.fixture
def run(home: Path) -> RunFolder:
    """A run whose rank 2 has this process for its wrapper."""
    made = make(write_specs(home), DONE)
    attempt = made.attempt(1)
    attempt.rank_end(2).unlink()
    write_json(attempt.rank_start(2), {"rank": 2, "host": "here", "wrapper": os.getpid()})
    return made


def test_a_shell_has_the_variables_of_its_rank(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "of-the-user")
    launch = json.loads(run.attempt(1).launch.read_text())
    argv, environment, folder = beside(run.attempt(1), 2, ["w"])
    assert argv == ["w"] and folder == str(run.attempt(1).folder)
    assert {**environment, **launch["roles"][0]["program"]["environment"]} == environment, "what the program is given"
    assert (environment["RANK"], environment["LOCAL_RANK"], environment["WORLD_SIZE"]) == ("2", "2", "4")
    assert environment["PATH"] == os.environ["PATH"] and environment["TERM"] == "of-the-user"


def test_a_shell_finds_no_program_in_its_working_directory(run: RunFolder) -> None:
    launch = json.loads(run.attempt(1).launch.read_text())
    launch["roles"][0]["program"]["environment"] |= {"PATH": ":bin:/usr/bin", "PYTHONPATH": "lib:/opt/lib"}
    write_json(run.attempt(1).launch, launch)
    _, environment, _ = beside(run.attempt(1), 2, ["w"])
    assert (environment["PATH"], environment["PYTHONPATH"]) == ("/usr/bin", "/opt/lib")


def test_no_shell_opens_for_a_rank_that_has_ended_or_has_not_started(run: RunFolder) -> None:
    with pytest.raises(SiteError, match="rank 1 has ended"):
        beside(run.attempt(1), 1, ["w"])
    gone = subprocess.Popen(["true"])
    gone.wait()
    write_json(run.attempt(1).rank_start(2), {"rank": 2, "host": "here", "wrapper": gone.pid})
    with pytest.raises(SiteError, match="is not at work on"):
        beside(run.attempt(1), 2, ["w"])
    run.attempt(1).rank_start(2).unlink()
    with pytest.raises(SiteError, match="rank 2 has not started yet"):
        beside(run.attempt(1), 2, ["w"])


def test_a_shell_in_a_held_allocation_has_what_its_keeper_has(run: RunFolder) -> None:
    state = KeeperState(os.getpid(), socket.gethostname(), time.time() + 60, 60.0, time.time())
    state.write(run.attempt(1))
    assert beside(run.attempt(1), 0, ["w"])[1]["RANK"] == "0"


def test_what_follows_two_dashes_is_the_command() -> None:
    parsed = _parse(["shell", "x", "--rank", "3", "--", "ls", "--", "-l"])
    assert (parsed.run_id, parsed.rank, parsed.command) == ("x", 3, ["ls", "--", "-l"])
    assert _parse(["shell", "x"]).command == []


# A shell that the job starts: both ends and the file between them, each a real process on this machine.


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
    return subprocess.run(argv, input=text, capture_output=True, text=True, timeout=300)


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
        assert (first.wait(), second.wait()) == (0, 0)
        assert second.stdout and second.stdout.read() == b"here\n"
        first.stdout.close()
        second.stdout.close()


def test_a_job_that_does_not_answer_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(opening, "WAIT_S", 0.1)
    with pytest.raises(SiteError, match=r"nothing on n3 connected .* within 0.1 s: nodes must reach this address"):
        opening.open_shell(tmp_path, "n3", ["true"], terminal=False)
    assert os.listdir(tmp_path) == []
