"""Requests for a shell, one file each in a folder of the attempt. Only their user can read or write them.

The job's side, on its first host, starts the requested shells on its hosts, and records failures.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import private, process
from torusrun.orchestrator.base.environment import safe
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import read_object, write_json
from torusrun.orchestrator.base.typed import read_record
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.schedulers import client, remote_shell
from torusrun.orchestrator.schedulers.interface import Scheduler

ENDING, FAILED = ".json", ".failed"
MEND = "nodes must reach this address, as for `qsub -I`; if the nodes have ssh, set remote_shell: ssh"
ROOM_S = 1.0  # after a shell for which its host may have had no room


@dataclass(frozen=True)
class ShellRequest:
    """A program on a host, which connects back to the user's machine."""

    host: str
    argv: tuple[str, ...]
    addresses: tuple[str, ...]  # of the user's machine; the program connects to one
    network: str  # of the user's machine, which has these addresses
    port: int
    secret: str  # hexadecimal; the program knows it
    rows: int  # of its terminal; 0 without a terminal
    columns: int  # the same

    @property
    def key(self) -> bytes:
        return bytes.fromhex(self.secret)

    @property
    def terminal(self) -> bool:
        return bool(self.rows and self.columns)

    def write(self, folder: Path) -> Path:
        """Write the request into `folder`; its file. Raises SiteError if that fails."""
        path = folder / f"{time.time_ns():020}-{os.getpid()}{ENDING}"
        write_json(path, {"schema": 2, **asdict(self)}, secret=True)
        return path


def read(path: Path) -> ShellRequest:
    """The request in `path`. Raises SiteError if it is gone, damaged, or not this user's."""
    if not private.is_mine(path) or not (request := read_record(path, ShellRequest)):
        raise SiteError(f"{path}: you have no such request")
    return request


def lying_in(folder: Path) -> list[Path]:
    """The files of the requests in a folder, oldest first; empty if it cannot be read now."""
    with contextlib.suppress(OSError):  # opened each time: over NFS that fetches new entries
        return sorted(path for path in folder.iterdir() if path.suffix == ENDING and not path.name.startswith("."))
    return []


def fail(path: Path, why: str) -> None:
    """Write why the request in `path` failed."""
    with contextlib.suppress(SiteError):
        write_json(path.with_suffix(FAILED), {"why": why})


def failure(path: Path) -> str:
    """Why the request in `path` failed; '' if it has not failed."""
    return str((read_object(path.with_suffix(FAILED)) or {}).get("why", ""))


@contextlib.contextmanager
def left(request: ShellRequest, folder: Path) -> Iterator[Path]:
    """Keep the request in `folder` for the context; its file."""
    path = request.write(folder)
    try:
        yield path
    finally:
        for file in (path, path.with_suffix(FAILED)):
            file.unlink(missing_ok=True)


def starter(folder: Path, site: Site, python: str) -> ShellStarter | None:
    """The starter of shells for this job; None if users can start shells without it."""
    if not client.of(site).shell_from_inside:
        return None
    return ShellStarter(folder, schedulers.get(site.scheduler), python)


@dataclass
class StartedShell:
    """A request that was started, at a time of time.monotonic(); `ran_s` is when its shell was last seen at work."""

    child: subprocess.Popen[bytes] | None  # None: it is over
    begun_s: float
    ran_s: float


class ShellStarter:
    """Starts the shells requested in `folder`, which it makes, with the job's own remote shell."""

    def __init__(self, folder: Path, scheduler: Scheduler, python: str) -> None:
        self.folder, self.scheduler, self.python = folder, scheduler, python
        self.started: dict[Path, StartedShell] = {}
        self.again_s = 0.0  # before this time no request is started, since the last had no room
        folder.mkdir(mode=0o700, exist_ok=True)

    def look(self) -> None:
        """Start the new requests; record failures, unless other shells may have left no room."""
        now_s = time.monotonic()
        for shell in self.started.values():
            if shell.child and shell.child.poll() is None:
                shell.ran_s = now_s
        for path in lying_in(self.folder) if now_s >= self.again_s else ():
            if path not in self.started:
                self.started[path] = StartedShell(self._start(path), now_s, now_s)
        for path, shell in [*self.started.items()]:
            if shell.child and (code := shell.child.poll()) is not None:
                shell.child = None
                if code and path.exists():
                    self._failed(path, code)

    def _failed(self, path: Path, code: int) -> None:
        """Start the shell again later if others ran meanwhile: Grid Engine allows one for each slot of a host."""
        begun_s = self.started.pop(path).begun_s
        if any(other.ran_s >= begun_s for other in self.started.values()):
            self.again_s = time.monotonic() + ROOM_S
            return
        self.started[path] = StartedShell(None, begun_s, begun_s)
        fail(path, f"the job's remote shell ended with exit code {code}; its log may say why")

    def _start(self, path: Path) -> subprocess.Popen[bytes] | None:
        own = safe(os.environ).get("PYTHONPATH", "")
        program = process.module(self.python, "torusrun.orchestrator.beside.shells.program", path)
        try:
            host = read(path).host
            argv = remote_shell.command(self.scheduler, host, shlex.join(["env", f"PYTHONPATH={own}", *program]))
            return process.start(argv, environment=os.environ, parent_death=signal.SIGTERM)
        except SiteError as error:
            fail(path, str(error))
            return None
