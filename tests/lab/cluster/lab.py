"""The interface of every scheduler's lab for tests: its own daemons on the cluster that all labs share."""

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
    """`env` has the variables by which the scheduler's commands find it; `server` is the daemon that answers them."""

    site_file: Path
    server: Daemon

    def __init__(self, cluster: Cluster, env: dict[str, str]) -> None:
        self.cluster, self.settings = cluster, cluster.settings
        self.src, self.home, self.nodes = self.settings.src, self.settings.home, list(self.settings.nodes)
        self.python = cluster.python
        self.env = {**cluster.env, **env}
        self.user_env = {**cluster.user_env, **env}

    @abstractmethod
    def start(self) -> None:
        """Install, configure and start the scheduler on the running cluster."""

    @abstractmethod
    def wait_in_service(self, node: str, timeout_s: float) -> None:
        """Wait until the scheduler gives this node jobs, whatever the reason for its downtime."""

    # Actions of a test on the cluster

    def admin(self, argv: Sequence[str], timeout_s: float = 120, check: bool = True) -> Done:
        """Run as root on the controller."""
        return run(argv, timeout_s=timeout_s, check=check, env={**self.env, MARK: "admin"})

    def exec_on(self, node: str, argv: Sequence[str], timeout_s: float = 120) -> Done:
        """Run as root inside a node."""
        return self.cluster.node[node].exec(argv, timeout_s)

    def kill_node(self, name: str) -> None:
        """Power off, in silence: the scheduler and peers must notice it by themselves."""
        self.cluster.node[name].kill()

    def start_node(self, name: str, timeout_s: float = 180) -> None:
        """Power on; returns when the node is in service again."""
        self.cluster.node[name].start()
        self.cluster.node[name].wait_booted()
        self.wait_in_service(name, timeout_s)

    @contextmanager
    def down(self) -> Iterator[None]:
        """Stop the scheduler's server, and start it again at the end."""
        self.server.stop()
        try:
            yield
        finally:
            self.server.start()

    @contextmanager
    def freeze(self) -> Iterator[None]:
        """Freeze the scheduler's server: its port is open, but it does not answer."""
        pid = self.server.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    # Actions of the user

    def add_to_path(self, folder: Path) -> None:
        """Add the user's programs to PATH, on the login side and, if PATH is passed on, in jobs."""
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
