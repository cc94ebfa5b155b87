"""The job's side of shells, on its first host: it starts requested shells on its hosts, and records failures."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.environment import safe
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.job.wire import request as requests
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.schedulers import client, remote_shell
from torusrun.orchestrator.schedulers.interface import Scheduler

ROOM_S = 1.0  # after a shell for which its host may have had no room


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
        self.again_s = 0.0  # before this time no request is started, since one had no room
        folder.mkdir(mode=0o700, exist_ok=True)

    def look(self) -> None:
        """Start the new requests; record those that failed, unless other shells may have left no room for them."""
        now_s = time.monotonic()
        for shell in self.started.values():
            if shell.child and shell.child.poll() is None:
                shell.ran_s = now_s
        for path in requests.lying_in(self.folder) if now_s >= self.again_s else ():
            if path not in self.started:
                self.started[path] = StartedShell(self._start(path), now_s, now_s)
        for path, shell in [*self.started.items()]:
            if shell.child and (code := shell.child.poll()) is not None:
                shell.child = None
                if code and path.exists():
                    self._failed(path, code)

    def _failed(self, path: Path, code: int) -> None:
        """Start it again later if other shells ran meanwhile: Grid Engine has one for each slot of a host."""
        begun_s = self.started.pop(path).begun_s
        if any(other.ran_s >= begun_s for other in self.started.values()):
            self.again_s = time.monotonic() + ROOM_S
            return
        self.started[path] = StartedShell(None, begun_s, begun_s)
        requests.fail(path, f"the job's remote shell ended with exit code {code}; its log may say why")

    def _start(self, path: Path) -> subprocess.Popen[bytes] | None:
        own = safe(os.environ).get("PYTHONPATH", "")
        words = [
            "env",
            f"PYTHONPATH={own}",
            *process.module(self.python, "torusrun.orchestrator.beside.shells.program", path),
        ]
        try:
            host = requests.read(path).host
            argv = remote_shell.command(self.scheduler, host, shlex.join(words))
            return process.start(argv, environment=os.environ, parent_death=signal.SIGTERM)
        except SiteError as error:
            requests.fail(path, str(error))
            return None
