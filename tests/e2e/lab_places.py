"""The places that are labs: a real scheduler on nodes of one machine, which can lose power and network."""

from __future__ import annotations

import shutil
import signal
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.e2e import processes
from tests.e2e.places import SHORTER, Place, Said
from tests.e2e.processes import Process
from tests.lab.cluster import network


class InLab(Place):
    """A lab's cluster: two nodes with two ranks each for tests of faults, four nodes for the other tests."""

    layout = "nodes: 2\ngrid: 2x2"
    excludes = True

    def __init__(self, lab: Any, name: str) -> None:
        self.lab = lab
        self.cluster = name
        self.folder = lab.home / f"{name}-runs"
        self.folder.mkdir(exist_ok=True)
        shutil.chown(self.folder, lab.settings.user, lab.settings.user)
        (self.folder / "site.yaml").write_text(lab.site_file.read_text())

    def run(self, argv: list[str], timeout_s: float = 600) -> Said:
        return self.lab.run_as_user(self._argv(argv), timeout_s=timeout_s, cwd=self.folder)

    def start(self, argv: list[str]) -> subprocess.Popen[str]:
        return self.lab.popen_as_user(self._argv(argv), cwd=self.folder)

    def _argv(self, argv: list[str]) -> list[str]:
        return [str(self.lab.python) if word == "python" else word for word in argv]

    def kill(self, host: str, pid: int) -> None:
        self.signal(host, pid, signal.SIGKILL)

    def signal(self, host: str, pid: int, number: int) -> None:
        said = self.lab.exec_on(host, ["kill", f"-{int(number)}", str(pid)])
        assert said.returncode == 0, said.stderr

    def processes(self, run: Path) -> list[Process]:
        up = {name: node.init_pid() for name, node in self.lab.cluster.node.items() if node.pid_file.exists()}
        return processes.of_run(run, {processes.namespace(pid): name for name, pid in up.items()})

    def power_off(self, host: str) -> None:
        self.lab.kill_node(host)

    def power_on(self, host: str) -> None:
        self.lab.start_node(host)

    def unplug(self, host: str) -> None:
        network.unplug(host)

    def plug(self, host: str) -> None:
        network.plug(host)
        self.lab.wait_in_service(host, 240)

    def _listed(self, *argv: str) -> list[str]:
        """The first words of the lines in the scheduler's own list of jobs."""
        said = self.lab.admin(argv)
        return [line.split()[0] for line in said.stdout.splitlines() if line.strip()]

    def down(self) -> AbstractContextManager[None]:
        return self.lab.down()

    def frozen(self) -> AbstractContextManager[None]:
        return self.lab.freeze()


class Slurm(InLab):
    digits = ["--set", "nodes=4", "--set", "ranks_per_node=1", "--set", "grid=2x2", *SHORTER]

    def __init__(self, lab: Any) -> None:
        super().__init__(lab, "slurm")

    def end_by_hand(self, job: str) -> list[str]:
        return ["scancel", job]

    def queued(self) -> list[str]:
        return self._listed("squeue", "--noheader", "--format=%i")


class GridEngine(InLab):
    digits = ["--site", "gridengine-lab", "--set", "nodes=4", "--set", "grid=8x1", *SHORTER]

    def __init__(self, lab: Any) -> None:
        super().__init__(lab, "gridengine")

    def queued(self) -> list[str]:
        return self._listed("qstat", "-u", "*")[2:]
