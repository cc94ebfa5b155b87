"""A build that a signal ends leaves no process and no file. A shell script is in the runtime's place."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import until
from torusrun.orchestrator.base import proc

# One process in the group of the runtime, and one in a session of its own. Its own pid is the third.
RUNTIME = """#!/bin/sh
if [ "$1" = --version ]; then echo apptainer version 1.4.5; exit; fi
sleep 1000 & inner=$!
mkfifo "$TMPDIR/ready"
setsid sh -c 'echo $$ > "$TMPDIR/ready"; exec sleep 1000' &
read -r outer < "$TMPDIR/ready"
echo $$ $inner $outer > "$BEGUN"
wait
"""
LEFT = {".log", ".lock"}  # of a build that failed


def begun(text: str, small: Path, home: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """A build by the script `text`, and the processes that it wrote into BEGUN."""
    runtime, fifo = home / "apptainer", home / "begun"
    runtime.write_text(text)
    runtime.chmod(0o755)
    os.mkfifo(fifo)
    container = f"{{cache: {home}/images, temporary: {home}/temporary, runtime: {runtime}}}"
    (home / "site.yaml").write_text(f"scheduler: local\nlauncher: spawn\ncontainer: {container}\n")
    words = [sys.executable, "-m", "torusrun", "image", "build", str(small), "--site", f"{home}/site.yaml"]
    environment = {**os.environ, "BEGUN": str(fifo)}
    build = subprocess.Popen(words, env=environment, start_new_session=True, stderr=subprocess.PIPE, text=True)
    return build, [int(word) for word in fifo.read_text().split()]


def ended(pids: list[int]) -> None:
    until(lambda: all(proc.state_of(pid) in ("", "Z") for pid in pids), f"the end of {pids}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_a_build_with_all_that_it_started(number: signal.Signals, small: Path, home: Path) -> None:
    build, pids = begun(RUNTIME, small, home)
    try:
        build.send_signal(number)
        said = build.communicate(timeout=120)[1]
        assert build.returncode == (130 if number == signal.SIGINT else 128 + number), said
        assert "Traceback" not in said
        left = [path.name for path in (home / "images").iterdir() if path.suffix not in LEFT]
        assert not left and not list((home / "temporary").iterdir()), "the folders of an ended build are removed"
        ended(pids)
    finally:
        kill(build, pids)


def test_the_next_build_ends_and_removes_what_a_killed_one_left(small: Path, home: Path) -> None:
    """SIGKILL lets nothing end in order: the runtime's own processes go on."""
    build, pids = begun(RUNTIME, small, home)
    try:
        build.kill()
        build.communicate(timeout=120)
        assert build.returncode == -signal.SIGKILL
        (home / "apptainer").write_text(RUNTIME.partition("sleep")[0] + "exit 1\n")
        words = [sys.executable, "-m", "torusrun", "image", "build", str(small), "--site", f"{home}/site.yaml"]
        said = subprocess.run(words, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
        assert said.returncode == 3, said.stderr
        ended(pids)
        left = [path.name for path in (home / "images").iterdir() if path.suffix not in LEFT]
        assert not left and not list((home / "temporary").iterdir())
    finally:
        kill(build, pids)


def kill(build: subprocess.Popen[str], pids: list[int]) -> None:
    for pid in (build.pid, *pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
