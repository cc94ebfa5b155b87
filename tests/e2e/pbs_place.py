"""An existing PBS, because PBS is in no package registry."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.e2e import processes
from tests.e2e.places import Place, Said, until
from tests.e2e.processes import Process


class PBS(Place):
    """An existing PBS: its commands are on PATH, or TORUSRUN_PBS_LAB is the command that enters one.

    Its user has a site 'pbs-lab', and a python3 with torusrun and torch that the nodes have too. The command that
    TORUSRUN_PBS_LAB_CONTROL names does harm to it, as root: `CONTROL stop`, `start`, `freeze` or `thaw` for the server;
    `kill HOST PID`, `power-off`, `power-on`, `unplug` or `plug HOST`, `on HOST COMMAND...`. Without it, tests that need
    it are skipped.
    """

    layout = "nodes: 2\ngrid: 2x2"
    digits = ["--set", "nodes=4", "--set", "grid=2x4"]
    cluster = "pbs"

    def __init__(self) -> None:
        self.prefix = shlex.split(os.environ.get("TORUSRUN_PBS_LAB", ""))
        home = subprocess.run([*self.prefix, "sh", "-c", 'echo "$HOME"'], text=True, capture_output=True, timeout=60)
        self.folder = Path(home.stdout.strip()) / "torusrun-suite"
        self.run(["mkdir", "-p", str(self.folder)])
        site = Path(home.stdout.strip()) / ".config/torusrun/sites/pbs-lab.yaml"
        assert site.exists(), f"describe this PBS in {site}: docs/guides/develop.md says how"
        self.run(["cp", str(site), "site.yaml"])

    @staticmethod
    def why_not_here() -> str | None:
        if "TORUSRUN_PBS_LAB" in os.environ or shutil.which("pbsnodes"):
            return None
        return "no PBS: no pbsnodes on PATH, and TORUSRUN_PBS_LAB does not name the command that enters one"

    @classmethod
    def why_no_harm(cls) -> str | None:
        reason = cls.why_not_here()
        return reason if reason or cls.controlled() else "TORUSRUN_PBS_LAB_CONTROL does not name what harms this PBS"

    def run(self, argv: list[str], timeout_s: float = 600) -> Said:
        return subprocess.run(self._argv(argv), text=True, capture_output=True, timeout=timeout_s)

    def start(self, argv: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(self._argv(argv), text=True)

    def _argv(self, argv: list[str]) -> list[str]:
        words = ["python3" if word == "python" else word for word in argv]
        return [*self.prefix, "sh", "-c", f"cd {shlex.quote(str(self.folder))} 2> /dev/null; {shlex.join(words)}"]

    def kill(self, host: str, pid: int) -> None:
        """SIGKILL a process; without a control, by a job on that host, which needs no other rights than a user's."""
        if self.controlled():
            return self._control("kill", host, str(pid))
        said = self.run(["qsub", "-l", f"select=1:ncpus=0:host={host}", "--", "/bin/kill", "-9", str(pid)])
        assert said.returncode == 0, said.stderr

    def signal(self, host: str, pid: int, number: int) -> None:
        self._control("on", host, "kill", f"-{int(number)}", str(pid))

    def processes(self, run: Path) -> list[Process]:
        """The processes as the hosts themselves see them; a host without power has none."""
        placed = [json.loads(path.read_text())["slots"] for path in run.glob("attempts/*/placement.json")]
        hosts = sorted({slot[1] for slots in placed for slot in slots})
        return [process for host in hosts for process in processes.told(self._said(host, run))]

    def _said(self, host: str, run: Path) -> str:
        argv = [*self._words(), "on", host, "python3", "-", str(run), host]
        text = Path(processes.__file__).read_text()
        return subprocess.run(argv, input=text, text=True, capture_output=True, timeout=60).stdout

    def queued(self) -> list[str]:
        return [line.split()[0] for line in self.run(["qstat"]).stdout.splitlines()[2:]]

    def power_off(self, host: str) -> None:
        self._control("power-off", host)

    def power_on(self, host: str) -> None:
        self._control("power-on", host)
        self._free(host)

    def unplug(self, host: str) -> None:
        self._control("unplug", host)

    def plug(self, host: str) -> None:
        self._control("plug", host)
        self._free(host)

    def _free(self, host: str) -> None:
        """Wait until the server gives this host jobs."""
        until(lambda: "state = free" in self.run(["pbsnodes", host]).stdout, f"{host} to be free", 600)

    @staticmethod
    def controlled() -> bool:
        return "TORUSRUN_PBS_LAB_CONTROL" in os.environ

    @staticmethod
    def _words() -> list[str]:
        return shlex.split(os.environ["TORUSRUN_PBS_LAB_CONTROL"])

    def down(self) -> AbstractContextManager[None]:
        return self._between("stop", "start")

    def frozen(self) -> AbstractContextManager[None]:
        return self._between("freeze", "thaw")

    def _between(self, begin: str, end: str) -> AbstractContextManager[None]:
        if not self.controlled():
            pytest.skip(f"TORUSRUN_PBS_LAB_CONTROL does not name the command that can {begin} this PBS's server")

        @contextmanager
        def between() -> Iterator[None]:
            try:
                self._control(begin)
                yield
            finally:
                self._control(end)

        return between()

    def _control(self, *words: str) -> None:
        argv = [*self._words(), *words]
        said = subprocess.run(argv, text=True, capture_output=True, timeout=120)
        assert said.returncode == 0, f"{shlex.join(argv)}: {said.stdout}{said.stderr}"
