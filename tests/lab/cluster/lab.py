"""What every scheduler's lab is to a test: its own daemons on the cluster that all of them share."""

from __future__ import annotations

import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .cluster import Cluster
from .processes import MARK, Daemon, LabError, run, tail

Done = subprocess.CompletedProcess[str]


class Lab(ABC):
    """`env` is what the scheduler's commands need to find it; `server` the daemon that answers them."""

    site_file: Path
    server: Daemon

    def __init__(self, cluster: Cluster, env: dict[str, str]) -> None:
        self.cluster, self.settings = cluster, cluster.settings
        self.src, self.home, self.nodes = self.settings.src, self.settings.home, self.settings.nodes
        self.python = cluster.python
        self.env = {**cluster.env, **env}
        self.user_env = {**cluster.user_env, **env}

    @abstractmethod
    def start(self) -> None:
        """Install, configure and start the scheduler on the running cluster."""

    @abstractmethod
    def wait_in_service(self, node: str, timeout_s: float) -> None:
        """Until the scheduler gives this node jobs, whatever it was put down for."""

    # What a test does to the cluster

    def admin(self, argv: Sequence[str], timeout_s: float = 30, check: bool = True) -> Done:
        """Run as root on the controller."""
        return run(argv, timeout_s=timeout_s, check=check, env={**self.env, MARK: "admin"})

    def exec_on(self, node: str, argv: Sequence[str], timeout_s: float = 30) -> Done:
        """Run as root inside a node."""
        return self.cluster.node[node].exec(argv, timeout_s)

    def kill_node(self, name: str) -> None:
        """Power off, in silence: the scheduler and peers have to notice it by themselves."""
        self.cluster.node[name].kill()

    def start_node(self, name: str, timeout_s: float = 60) -> None:
        """Power on; returns when the scheduler has the node in service."""
        self.cluster.node[name].start()
        self.cluster.node[name].wait_booted()
        self.wait_in_service(name, timeout_s)

    @contextmanager
    def down(self) -> Iterator[None]:
        """The scheduler's server is stopped, and started again after."""
        self.server.stop()
        try:
            yield
        finally:
            self.server.start()

    @contextmanager
    def freeze(self) -> Iterator[None]:
        """The scheduler's server stands still: its port is open, and nobody gets an answer."""
        pid = self.server.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    # What the user does

    def add_to_path(self, folder: Path) -> None:
        """Programs of the user's, on the login side and, where PATH is handed on, in jobs."""
        self.user_env["PATH"] = f"{folder}:{self.user_env['PATH']}"

    def run_as_user(
        self,
        argv: Sequence[str],
        timeout_s: float = 60,
        cwd: Path | str | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = False,
    ) -> Done:
        """Run on the login side; `env` is added to the user's own."""
        done = subprocess.run(
            argv, timeout=timeout_s, text=True, capture_output=True, stdin=subprocess.DEVNULL, **self.as_user(cwd, env)
        )
        if check and done.returncode:
            raise LabError(f"{argv}: exit {done.returncode}\n{done.stdout}{done.stderr}{tail(self.server.log)}")
        return done

    def popen_as_user(
        self, argv: Sequence[str], cwd: Path | str | None = None, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(argv, text=True, **self.as_user(cwd, env), **options)

    def as_user(self, cwd: Path | str | None, env: Mapping[str, str] | None) -> dict[str, Any]:
        """The arguments that make subprocess start a program as the user."""
        name = self.settings.user
        return {
            "user": name,
            "group": name,
            "extra_groups": [],
            "cwd": cwd or self.home,
            "env": {**self.user_env, **(env or {})},
        }
