"""The program of a rank from its start to its end, and what its wrapper is asked meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from orchestrator.base import proc
from orchestrator.base.errors import TorusrunError
from orchestrator.base.json_files import write_json
from orchestrator.runs.folder import claim
from orchestrator.runs.folder.log_times import Recorder
from orchestrator.runs.folder.run_folder import Attempt, RunFolder
from orchestrator.runs.program.what_runs import Program

POLL_S = 0.2
HOST_PULSE_S = 10.0  # one rank of each host shows that often that the host lives
NEWER_S = 15.0  # between looks for a newer attempt; the supervisor looks too, but may be gone


class RankProgram:
    """The program of a rank from its start to its end, and what the wrapper is asked meanwhile."""

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        attempt: Attempt,
        rank: int,
        program: Program,
        kill_after_s: float,
        times: Recorder,
        *,
        pulse: bool,
        joined: bool = False,
    ) -> None:
        self.child, self.attempt, self.rank = child, attempt, rank
        self.program, self.kill_after_s, self.times = program, kill_after_s, times
        self.pulse_s = time.monotonic() if pulse else float("inf")
        self.newer_s = time.monotonic()
        self.joined = joined
        self.told_s: float | None = None
        self.asked_where = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
            signal.signal(number, self._ask_to_stop)
        signal.signal(signal.SIGUSR1, self._ask_where)

    def wait(self) -> tuple[int, bool]:
        """(the exit code, negative for a signal; whether the program was told to end before)."""
        noted = False
        while True:
            try:
                code = self.child.wait(timeout=POLL_S)
                self._kill()
                self.times.look(last=True)
                return code, self.told_s is not None
            except subprocess.TimeoutExpired:
                self.times.look()
                if self.told_s and not noted:
                    noted = True
                    self._note(self.attempt.rank_told(self.rank))
                if self.told_s and time.monotonic() - self.told_s > self.kill_after_s:
                    self._kill()
                if time.monotonic() > self.pulse_s + HOST_PULSE_S:
                    self.pulse_s = time.monotonic()
                    with contextlib.suppress(OSError):  # the time of the record says that this host lives
                        os.utime(self.attempt.rank_start(self.rank))
                if time.monotonic() > self.newer_s + NEWER_S:
                    self.newer_s = time.monotonic()
                    if self._is_superseded():
                        self._kill()
                if self.asked_where:
                    self.asked_where = False
                    self._note(self.attempt.rank_seen(self.rank), process=proc.state_of(self._program()))

    def _is_superseded(self) -> bool:
        """Whether a newer attempt has begun. This rank may wait for ever for one whose host went silent."""
        try:
            claim.check(RunFolder(self.attempt.folder.parents[1]), self.attempt.number)
        except claim.Superseded as error:
            print(f"torusrun: {error}", file=sys.stderr, flush=True)
            return True
        return False

    def _ask_to_stop(self, number: int, frame: FrameType | None) -> None:
        """Any request to end reaches the program once, as the signal it knows: it stops after a checkpoint."""
        if self.told_s is None:
            self._send(self.program.stop_signal)
            self._send(signal.SIGCONT)  # one that is stopped would hear nothing, and show no stack
            self.told_s = time.monotonic()

    def _ask_where(self, number: int, frame: FrameType | None) -> None:
        """The supervisor asks where the ranks are: the program writes its stack to its log, if it knows how."""
        if self.program.shows_stack:
            self._send(signal.SIGUSR1)
        self.asked_where = True

    def _send(self, number: int) -> None:
        if self.child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._program(), number)

    def _program(self) -> int:
        """The process of the program: a runtime passes signals on to it, but not to one that joined an instance."""
        return proc.child_of(self.child.pid) if self.joined else self.child.pid

    def _kill(self) -> None:
        """End the program and, where it has a group of its own, what it started."""
        self.child.kill()
        if self.program.own_group:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.child.pid, signal.SIGKILL)

    def _note(self, path: Path, **values: Any) -> None:
        """Something that the supervisor may want to know; that the disk is full, it knows already."""
        with contextlib.suppress(TorusrunError):
            write_json(path, {"t": time.time(), **values})
