"""`python -m MODULE CONFIG` in a process forked from a server, without the seconds in which torch is loaded."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from torus_ranks import FORKS

from tests.waiting import until


class ForkedRank:
    """As much of `subprocess.Popen` as tests need. It leads a session of its own, and begins when a file is there."""

    def __init__(
        self, module: str, config: Path, log: Path, environment: dict[str, str], when: Path | None = None
    ) -> None:
        self._process = FORKS.Process(target=_run, args=(module, config, log, environment, when))
        self._process.start()
        assert self._process.pid
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout_s: float | None = None) -> int:
        self._process.join(timeout_s)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a rank", timeout_s or 0.0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it with all its processes, also in its first moment, when it leads none."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.kill()


def _run(module: str, config: Path, log: Path, environment: dict[str, str], when: Path | None) -> None:
    os.setsid()
    if when:
        until(when.exists, str(when))
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = environment["PYTHONPATH"].split(":")
    with log.open("wb") as stderr:
        os.dup2(stderr.fileno(), 2)
    sys.argv = [module, str(config)]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
