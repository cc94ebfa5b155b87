"""The job's side of shells, on its first host: it starts requested shells on its hosts, and records failures."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from pathlib import Path

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.environment import safe
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.job.wire import request as requests
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.schedulers import client, remote_shell
from torusrun.orchestrator.schedulers.interface import Scheduler


def starter(folder: Path, site: Site, python: str) -> ShellStarter | None:
    """The starter of shells for this job; None if users can start shells without it."""
    if not client.of(site).shell_from_inside:
        return None
    return ShellStarter(folder, schedulers.get(site.scheduler), python)


class ShellStarter:
    """Starts the shells requested in `folder`, which it makes, with the job's own remote shell."""

    def __init__(self, folder: Path, scheduler: Scheduler, python: str) -> None:
        self.folder, self.scheduler, self.python = folder, scheduler, python
        self.started: dict[Path, subprocess.Popen[bytes] | None] = {}
        folder.mkdir(mode=0o700, exist_ok=True)

    def look(self) -> None:
        """Start the new requests; record those that failed, unless other shells may have left no room for them."""
        for path in requests.lying_in(self.folder):
            if path not in self.started:
                self.started[path] = self._start(path)
        for path, child in [*self.started.items()]:
            if child and (code := child.poll()) is not None:
                self.started[path] = None
                if not code or not path.exists():
                    continue
                if any(other and other.poll() is None for other in self.started.values()):
                    del self.started[path]  # Grid Engine has no more of them on a host than slots: it waits for a turn
                else:
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
