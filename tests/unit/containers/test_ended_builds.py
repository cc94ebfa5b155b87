"""A build that a signal ends leaves no process and no file. A shell script is in the runtime's place."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.base import proc
from tests.waiting import until

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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_a_build_with_all_that_it_started(
    number: signal.Signals, small: Path, home: Path, tmp_path: Path
) -> None:
    runtime, begun, temporary = tmp_path / "apptainer", tmp_path / "begun", tmp_path / "temporary"
    runtime.write_text(RUNTIME)
    runtime.chmod(0o755)
    os.mkfifo(begun)
    container = f"{{cache: {home}/images, temporary: {temporary}, runtime: {runtime}}}"
    (home / "site.yaml").write_text(f"scheduler: local\nlauncher: spawn\ncontainer: {container}\n")
    words = [sys.executable, "-m", "orchestrator", "build", str(small), "--site", f"{home}/site.yaml"]
    build = subprocess.Popen(
        words, env={**os.environ, "BEGUN": str(begun)}, start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    pids = [int(word) for word in begun.read_text().split()]
    try:
        build.send_signal(number)
        said = build.communicate(timeout=120)[1]
        assert build.returncode == (130 if number == signal.SIGINT else 128 + number), said
        assert "Traceback" not in said
        left = [path.name for path in (home / "images").iterdir() if path.suffix not in LEFT]
        assert not left and not list(temporary.iterdir()), "the folders of an ended build are removed"
        until(lambda: all(proc.state_of(pid) in ("", "Z") for pid in pids), f"the end of {pids}", 30)
    finally:
        for pid in (build.pid, *pids):
            subprocess.run(["kill", "-9", str(pid)], stderr=subprocess.DEVNULL, timeout=10, check=False)
