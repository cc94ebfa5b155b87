"""One node: a tree of processes in its own namespaces, which can lose its power."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from . import network
from .processes import MARK, LabError, children, kill, run, wait_until
from .settings import Settings

INIT = Path(__file__).with_name("node_init.sh")
UNSHARE = ["unshare", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
SPACES = ["--net", "--uts", "--ipc", "--mount", "--pid", "--wd=/"]


class Node:
    def __init__(self, name: str, settings: Settings, env: dict[str, str]) -> None:
        self.name, self.settings = name, settings
        self.env = {**env, MARK: name}
        self.pid_file = settings.root / "run" / f"{name}.pid"
        self.booted = settings.root / "run" / f"{name}.booted"
        self.log = settings.log(f"{name}.init")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin to boot; each lab says when its own programs are up."""
        self.booted.unlink(missing_ok=True)
        network.plug(self.name)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    "nsenter",
                    f"--net=/run/netns/{network.namespace(self.name)}",
                    *UNSHARE,
                    "/bin/sh",
                    str(INIT),
                    self.name,
                    str(self.settings.root),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env,
                start_new_session=True,
            )
        self.pid_file.write_text(str(self.process.pid))

    def wait_booted(self, timeout_s: float = 120) -> None:
        wait_until(f"boot of {self.name}", self.booted.exists, timeout_s, self.log)

    def spawn(self, argv: Sequence[str]) -> None:
        """Start a program in the running node, as if it had booted with it."""
        enter = ["nsenter", "-t", str(self.init_pid()), *SPACES]
        with self.log.open("ab") as log:
            subprocess.Popen(
                [*enter, *argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env, start_new_session=True
            )

    def init_pid(self) -> int:
        parent = int(self.pid_file.read_text()) if self.pid_file.exists() else 0
        for pid in children(parent):
            return pid
        raise LabError(f"{self.name} is not running: start_node({self.name!r}) first")

    def kill(self, timeout_s: float = 60) -> None:
        """Power off: first the packets stop, then all processes end."""
        network.unplug(self.name)
        kill(self.init_pid())
        self.reap(timeout_s)
        self.pid_file.unlink()

    def reap(self, timeout_s: float = 60) -> None:
        if self.process is not None:
            self.process.wait(timeout_s)

    def exec(self, argv: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
        enter = ["nsenter", "-t", str(self.init_pid()), *SPACES]
        return run([*enter, *argv], timeout_s=timeout_s, env=self.env, check=False)
