"""A real Slurm cluster on this machine: daemons, a database, nodes that can lose power, an ordinary user.

    with SlurmLab() as lab:
        print(lab.run_as_user(["srun", "-N4", "hostname"]).stdout)

Everything lies in one folder, made afresh by start() and removed by stop(). One lab at a time on a machine.
"""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from . import cgroups, config, daemons, network, packages, user
from .node import Node
from .processes import MARK, LabError, kill_marked, run, tail, wait_until
from .settings import MOST_NODES, REPO, Settings

LOCK = Path("/run/torusrun-lab.lock")
Done = subprocess.CompletedProcess[str]
IN_SERVICE = ("idle", "mixed", "allocated", "completing")


class SlurmLab:
    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.root, self.src, self.home = self.settings.root, self.settings.src, self.settings.home
        self.nodes = self.settings.nodes
        self.site_file = self.home / "site.yaml"
        self.python = user.python(REPO, self.src)
        self.has_cgroups = cgroups.usable()
        self.env = {"SLURM_CONF": str(self.settings.slurm_conf), "PATH": packages.SEARCH, "LANG": "C.UTF-8"}
        self.user_env = {**self.env, **user.environment(self.settings, self.python), MARK: "user"}
        self._node = {name: Node(name, self.settings, self.env) for name in self.nodes}
        self._daemons = [
            make(self.settings, self.env)
            for make in (daemons.munged, daemons.mariadbd, daemons.slurmdbd, daemons.slurmctld)
        ]
        self._munged, self._mariadbd, self._slurmdbd, self._slurmctld = self._daemons
        self._lock: TextIO | None = None

    def __enter__(self) -> SlurmLab:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, wait_s: float = 900) -> None:
        if reason := packages.why_not_here():
            raise LabError(reason)
        packages.install()
        wait_until("the lab that another session has in use", lambda: self._lock_is_ours(), wait_s)
        with ExitStack() as undo:
            undo.callback(self.stop)
            self._sweep()
            self._build()
            undo.pop_all()

    def _build(self) -> None:
        config.make_folder(self.settings)
        config.make_user(self.settings)
        config.write(self.settings, self.has_cgroups)
        config.mount_checkout(REPO, self.src)
        user.check_python(self.python, self.run_as_user)
        network.make(self.nodes)
        self._start_controller()
        for node in self._node.values():
            node.start()
        self._wait_idle()

    def _start_controller(self) -> None:
        self._munged.start()
        daemons.make_database(self.settings, self.env)
        self._mariadbd.start()
        self._slurmdbd.start()
        daemons.open_account(self.settings, self.env)
        self._slurmctld.start()

    def _wait_idle(self, timeout_s: float = 30) -> None:
        for node in self._node.values():
            node.wait_booted()
        wait_until(
            "all nodes idle",
            lambda: set(self.node_states().values()) == {"idle"},
            timeout_s,
            self.settings.log("slurmctld"),
        )

    def stop(self) -> None:
        """Also ends a lab that another process started and left running."""
        if not self._lock_is_ours():
            raise LabError(f"another session has the lab in use (lock {LOCK}): wait for its end")
        self._sweep()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _sweep(self) -> None:
        """Remove this lab, or what a killed earlier one left; nothing in it is worth a gentle end."""
        kill_marked(self.root)
        network.remove()
        cgroups.remove([f"node{number}" for number in range(1, MOST_NODES + 1)])
        config.remove_folder(self.root)
        for daemon in self._daemons:
            daemon.stop()
        for node in self._node.values():
            node.reap()

    def _lock_is_ours(self) -> bool:
        """Take the lock unless another session has it."""
        if self._lock is None:
            lock = LOCK.open("a")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                return False
            self._lock = lock
        return True

    # What a test does to the cluster

    def node_states(self) -> dict[str, str]:
        """Node name -> state in sinfo's long form, such as "idle", "down*"."""
        lines = self.admin(["sinfo", "-h", "-N", "-p", "main", "-o", "%N %T"]).stdout.splitlines()
        return dict(line.split() for line in lines)

    def admin(self, argv: Sequence[str], timeout_s: float = 30, check: bool = True) -> Done:
        """Run as root on the controller."""
        return run(argv, timeout_s=timeout_s, check=check, env={**self.env, MARK: "admin"})

    def exec_on(self, node: str, argv: Sequence[str], timeout_s: float = 30) -> Done:
        """Run as root inside a node."""
        return self._node[node].exec(argv, timeout_s)

    def kill_node(self, name: str) -> None:
        """Power off, in silence: Slurm and peers have to notice it by themselves."""
        self._node[name].kill()

    def start_node(self, name: str, timeout_s: float = 30) -> None:
        """Power on; returns when Slurm has the node in service, whatever it was put down for."""
        self._node[name].start()
        self._node[name].wait_booted()
        wait_until(f"{name} in service", lambda: self._in_service(name), timeout_s, self.settings.log("slurmctld"))

    def _in_service(self, name: str) -> bool:
        state = self.node_states()[name]
        if state.startswith(("down", "drain")) and not state.endswith("*"):
            self.admin(["scontrol", "update", f"nodename={name}", "state=resume"], check=False)
        return state in IN_SERVICE

    def stop_slurmctld(self) -> None:
        self._slurmctld.stop()

    def start_slurmctld(self) -> None:
        self._slurmctld.start()

    def stop_slurmdbd(self) -> None:
        self._slurmdbd.stop()

    def start_slurmdbd(self) -> None:
        self._slurmdbd.start()

    # What the user does

    def add_to_path(self, folder: Path) -> None:
        """Programs of the user's, on the login side and, as Slurm hands PATH on, in jobs."""
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
            log = tail(self.settings.log("slurmctld"))
            raise LabError(f"{argv}: exit {done.returncode}\n{done.stdout}{done.stderr}{log}")
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
