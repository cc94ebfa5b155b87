"""The stack of a program that makes no progress and writes none itself, by py-spy, if it is on the job's PATH."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.environment import which
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.private import open_regular

PY_SPY_S = 3.0  # the supervisor waits a little longer for an answer
THREAD = re.compile(r"^Thread (\d+) .*$")
FRAME = re.compile(r"^    (.+) \((.+):(\d+)\)$")


def by_py_spy(pid: int, log: Path) -> bool:
    """Append the stacks of a Python's threads to `log`, as faulthandler would; False without py-spy or a Python."""
    found = which("py-spy")
    if not found:
        return False
    with contextlib.suppress(SiteError, OSError):
        command = [found, "dump", "--full-filenames", "--nonblocking", "--pid", str(pid)]
        dump = as_faulthandler(process.run(command, timeout_s=PY_SPY_S).stdout, pid)
        with open(open_regular(log, os.O_WRONLY | os.O_APPEND), "ab") as file:
            return file.write(dump.encode()) > 0
    return False


def as_faulthandler(dump: str, main: int) -> str:
    """py-spy's output in the format of faulthandler, with the main thread last."""
    threads: dict[int, list[str]] = {}
    lines: list[str] = []
    for line in dump.splitlines():
        if thread := THREAD.match(line):
            lines = threads.setdefault(int(thread[1]), [f"Thread 0x{int(thread[1]):016x} (most recent call first):"])
        elif frame := FRAME.match(line):
            lines.append(f'  File "{frame[2]}", line {frame[3]} in {frame[1]}')
    ordered = sorted(threads, key=lambda number: number == main)
    return "".join(f"{line}\n" for number in ordered for line in threads[number])
