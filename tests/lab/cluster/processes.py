"""Processes of the lab: run one, keep one running, find and end all of them.

Each has MARK in its environment, so a later lab finds the processes of a killed one.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

MARK = "TORUSRUN_LAB"
POLL_S = 0.03


class LabError(RuntimeError):
    """The lab could not do an action; the message names it and shows the log's end."""


class Busy(LabError):
    """Another run has what there is once on a machine."""


def taken(lock: Path) -> TextIO:
    """The lock of what there is once on a machine, as an open file, after other workers of this run.

    Raises Busy at once if another run has it.
    """
    file, run = lock.open("a"), os.environ.get("PYTEST_XDIST_TESTRUNUID")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if run and lock.read_text() == run else fcntl.LOCK_NB))
    except BlockingIOError:
        file.close()
        raise Busy(f"another run has the lab in use (lock {lock}): wait for its end") from None
    file.truncate(0)
    file.write(run or "")
    file.flush()
    return file


def run(
    argv: Sequence[str], timeout_s: float = 120, check: bool = True, env: dict[str, str] | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(argv, timeout=timeout_s, env=env, input=stdin, text=True, capture_output=True)
    if check and done.returncode:
        raise LabError(f"{' '.join(argv)}: exit {done.returncode}\n{done.stdout}{done.stderr}{stdin}")
    return done


def wait_until(what: str, ready: Callable[[], bool], timeout_s: float, log: Path | None = None) -> None:
    deadline = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > deadline:
            raise LabError(f"{what}: not after {timeout_s:g} s{tail(log)}")
        time.sleep(POLL_S)


def tail(log: Path | None, lines: int = 25) -> str:
    if log is None or not log.exists():
        return ""
    return f"\n--- end of {log}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


class Daemon:
    """One background process that logs to a file; start() returns when it is ready."""

    def __init__(
        self, name: str, argv: Sequence[str], log: Path, env: dict[str, str], ready: Callable[[], bool]
    ) -> None:
        self.name, self.argv, self.log, self.ready = name, list(argv), log, ready
        self.env = {**env, MARK: name}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, timeout_s: float = 120) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env, start_new_session=True
            )
        wait_until(f"start of {self.name}", self._ready_or_dead, timeout_s, self.log)

    def _ready_or_dead(self) -> bool:
        if self.process is None or self.process.poll() is not None:
            raise LabError(f"{self.name} ended at once{tail(self.log)}")
        return self.ready()

    @property
    def pid(self) -> int:
        if self.process is None:
            raise LabError(f"{self.name} is not running: start() it first")
        return self.process.pid

    def stop(self, timeout_s: float = 10) -> None:
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(timeout_s)


def marked(root: Path) -> list[int]:
    """Living processes of any lab or of this root, without this one and its ancestors (`down` in its shell)."""
    spared = set(_ancestors(os.getpid()))
    ids = {int(entry) for entry in os.listdir("/proc") if entry.isdigit()} - spared
    return [pid for pid in ids if _belongs(b"\0" + _proc(pid, "environ"), root)]


def _belongs(environ: bytes, root: Path) -> bool:
    """Whether a process is the lab's. A program may remove MARK from its children's environment, but hardly these."""
    signs = [f"\0{MARK}=", f"\0SLURM_CONF={root}/", f"\0SGE_ROOT={root}/", f"\0HOME={root}/"]
    return any(sign.encode() in environ for sign in signs)


def kill_marked(root: Path, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while left := marked(root):
        if time.monotonic() > deadline:
            raise LabError(f"processes {left} of the lab survive SIGKILL")
        for pid in left:
            kill(pid)
        time.sleep(POLL_S)


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def children(pid: int) -> list[int]:
    return [int(child) for child in _proc(pid, f"task/{pid}/children").split()]


def _ancestors(pid: int) -> list[int]:
    if pid == 0:
        return []
    parent = _proc(pid, "stat").rpartition(b")")[2].split()
    return [pid, *_ancestors(int(parent[1]) if parent else 0)]


def _proc(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # it ended meanwhile (ENOENT or ESRCH), or is a kernel thread
        return b""
