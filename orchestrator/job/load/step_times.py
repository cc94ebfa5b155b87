"""Receives the reports of our training's ranks, by a socket of this node that has no file.

Only messages of the same user count: the kernel names the sender of each.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import socket
import struct
import time
from collections import defaultdict, deque
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import read_object
from torusrun.orchestrator.base.typed import record_of
from torusrun.orchestrator.run.folder.at_work import Beat, RankSteps
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.training.reporting import heartbeat

CREDENTIALS = struct.Struct("3i")  # pid, uid, gid (unix(7))
LARGEST_BYTES = 1024
FEWEST_STEPS = 50
FEWEST_REPORTS = 5
EVERY_S = 1.0
NEVER = float("inf")


def address(attempt: Attempt) -> str:
    """The address to which the ranks of this attempt report; '' if they do not run our training."""
    try:
        token = (read_object(attempt.config) or {}).get("token")
    except SiteError:
        return ""
    return heartbeat.address(token) if type(token) is str else ""


class StepsTold:
    """The newest step times of some ranks; none if the address cannot be bound.

    What rank 0 does now is passed on to `beats`.
    """

    def __init__(self, address: str, ranks: Collection[int], beats: BeatFile) -> None:
        self._ranks, self._beats = frozenset(ranks), beats
        self._newest: dict[int, RankSteps] = {}
        self._recent = defaultdict[int, RecentSteps](RecentSteps)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        with contextlib.suppress(OSError):  # another process has the address
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            if address:
                self._socket.bind(address)

    def newest(self) -> tuple[RankSteps, ...]:
        return tuple(self._newest[rank] for rank in sorted(self._newest))

    def wait(self, until_s: float, stop: int) -> bool:
        """Receive reports until `until_s` of time.monotonic(); False as soon as the descriptor `stop` can be read."""
        waiting = select.poll()  # select takes no descriptor above 1023
        for descriptor in (self._socket.fileno(), stop):
            waiting.register(descriptor, select.POLLIN)
        while (now_s := time.monotonic()) < until_s:
            self._beats.look(now_s)
            wait_s = max(min(until_s, self._beats.due_s) - now_s, 0.0)
            ready = [descriptor for descriptor, _ in waiting.poll(math.ceil(wait_s * 1000))]
            if stop in ready:
                return False
            if ready:
                self._hear()
        return True

    def close(self) -> None:
        self._socket.close()

    def _hear(self) -> None:
        with contextlib.suppress(OSError, ValueError, RecursionError):
            message, more, _, _ = self._socket.recvmsg(LARGEST_BYTES, socket.CMSG_SPACE(CREDENTIALS.size))
            users = [CREDENTIALS.unpack(data)[1] for _, kind, data in more if kind == socket.SCM_CREDENTIALS]
            row = json.loads(message)
            if users == [os.geteuid()] and type(row) is dict:
                self._keep(row)

    def _keep(self, row: Mapping[str, object]) -> None:
        if "doing" in row:
            self._beats.put(record_of(Beat, row))
            return
        steps = record_of(RankSteps, {**row, "told_s": time.time()})
        if steps.rank in self._ranks:
            self._newest[steps.rank] = self._recent[steps.rank].add(steps)


class RecentSteps:
    """The reports of one rank over its newest steps: at least FEWEST_STEPS and FEWEST_REPORTS."""

    def __init__(self) -> None:
        self._last_step: int | None = None
        self._reports: deque[tuple[int, float]] = deque()  # how many steps, and the time of a step without waiting
        self._steps = 0

    def add(self, report: RankSteps) -> RankSteps:
        """The report, with the median of the newest reports.

        The first report of a rank does not count: it has the rank's start.
        """
        last, self._last_step, computed_s = self._last_step, report.step, report.computed_s
        if last is None or report.step <= last:
            return report
        steps = report.step - last
        if computed_s is None:
            return report
        self._reports.append((steps, computed_s))
        self._steps += steps
        while len(self._reports) > FEWEST_REPORTS and self._steps - self._reports[0][0] >= FEWEST_STEPS:
            self._steps -= self._reports.popleft()[0]
        if self._steps < FEWEST_STEPS or len(self._reports) < FEWEST_REPORTS:
            return report
        return replace(report, recent_s=median(time_s for _, time_s in self._reports), recent_steps=self._steps)


class BeatFile:
    """The file at `path`; times are of time.monotonic()."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending: Beat | None = None
        self._written_s = -NEVER

    def put(self, beat: Beat) -> None:
        """Keep a record until it is due."""
        self._pending = beat

    @property
    def due_s(self) -> float:
        """When the newest record has to be written; infinite if it is."""
        return self._written_s + EVERY_S if self._pending else NEVER

    def look(self, now_s: float) -> None:
        """Write the newest record if it is due."""
        if self._pending and now_s >= self.due_s:
            self._pending.write(self._path)
            self._pending, self._written_s = None, now_s
