"""What others can report about a program that makes no progress: py-spy its stack, PyTorch its collective operations.

Both are used where they are: py-spy if it is on the job's PATH, PyTorch's flight recorder if the program's environment
asks for one with a pipe.
"""

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
PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"  # of torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, DumpPipe


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


def ask_flight_recorder(pid: int, rank: int) -> None:
    """Ask PyTorch to write the newest collective operations to the file that the program's environment names."""
    with contextlib.suppress(OSError):
        given = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        stem = next((os.fsdecode(text[len(PIPE) + 1 :]) for text in given if text.startswith(f"{PIPE}=".encode())), "")
        if not stem.startswith("/"):
            return
        pipe = f"/proc/{pid}/root{stem}{rank}.pipe"  # in the program's image
        descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(descriptor, b"1\n")
        finally:
            os.close(descriptor)
