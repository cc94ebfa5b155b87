"""The cluster that the labs' schedulers share: nodes in namespaces of this machine, an ordinary user, the checkout.

Everything is in one folder, made anew by start() and removed by stop(). A machine can have one cluster at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TextIO

from . import folder, network, packages, user
from .node import Node
from .processes import MARK, LabError, kill_marked, taken
from .settings import REPO, Settings

LOCK = Path("/run/torusrun-lab.lock")


class Cluster:
    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.python = user.python(REPO, self.settings.src)
        self.env = {"PATH": packages.SEARCH, "LANG": "C.UTF-8"}
        self.user_env = {**self.env, **user.environment(self.settings, self.python), MARK: "user"}
        self.node = {name: Node(name, self.settings, self.env) for name in self.settings.nodes}
        self._undo: list[Callable[[], None]] = []
        self._lock: TextIO | None = None

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        if reason := packages.why_not_here():
            raise LabError(reason)
        self._take_lock()
        with ExitStack() as undo:
            undo.callback(self.stop)
            packages.install_missing(packages.PACKAGE_OF)
            self._sweep()
            folder.make(self.settings)
            folder.make_user(self.settings)
            folder.mount_hosts(self.settings)
            folder.mount_checkout(REPO, self.settings.src)
            user.check_python(self.python, self.settings, self.user_env)
            network.make(self.settings.nodes)
            for node in self.node.values():
                node.start()
            for node in self.node.values():
                node.wait_booted()
            undo.pop_all()

    def boots(self, name: str, script: str) -> None:
        """Let every node run this shell script when it boots; running nodes run it now."""
        path = self.settings.boot / f"{name}.sh"
        path.write_text(script)
        for node in self.node.values():
            node.spawn(["/bin/sh", str(path), node.name])

    def at_the_end(self, undo: Callable[[], None]) -> None:
        """Register the removal of a scheduler's traces outside the cluster's folder and processes."""
        self._undo.append(undo)

    def stop(self) -> None:
        """Stop the cluster, also one that another process started and left running."""
        self._take_lock()
        self._sweep()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _sweep(self) -> None:
        """Remove this cluster, or the remains of a killed earlier one; nothing in it needs a gentle end."""
        kill_marked(self.settings.root)
        network.remove()
        while self._undo:
            self._undo.pop()()
        folder.unmount_hosts(self.settings)
        folder.remove(self.settings.root)
        for node in self.node.values():
            node.reap()

    def _take_lock(self) -> None:
        if self._lock is None:
            self._lock = taken(LOCK)
