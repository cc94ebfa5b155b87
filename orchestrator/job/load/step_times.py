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
from collections import defaultdict
from collections.abc import Collection, Mapping

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import read_object
from torusrun.orchestrator.base.typed import record_of
from torusrun.orchestrator.job.load.beat_file import BeatFile
from torusrun.orchestrator.job.load.recent_steps import RecentSteps
from torusrun.orchestrator.run.folder.beat import Beat
from torusrun.orchestrator.run.folder.node_load import RankSteps
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.training.reporting import heartbeat

CREDENTIALS = struct.Struct("3i")  # pid, uid, gid (unix(7))
LARGEST_BYTES = 1024


def address(attempt: Attempt) -> str:
    """The address to which the ranks of this attempt report; '' if they do not run our training."""
    try:
        token = (read_object(attempt.config) or {}).get("token")
    except SiteError:
        return ""
    return heartbeat.address(token) if type(token) is str else ""


class StepsTold:
    """The newest step times of each of some ranks. If the address cannot be bound, there are none.

    What rank 0 does now is passed on to `beats`.
    """

    def __init__(self, address: str, ranks: Collection[int], beats: BeatFile) -> None:
        self._ranks, self._beats = frozenset(ranks), beats
        self._found: dict[int, RankSteps] = {}
        self._recent = defaultdict[int, RecentSteps](RecentSteps)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        with contextlib.suppress(OSError):  # another process has the address
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            if address:
                self._socket.bind(address)

    def newest(self) -> tuple[RankSteps, ...]:
        return tuple(self._found[rank] for rank in sorted(self._found))

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
            self._found[steps.rank] = self._recent[steps.rank].add(steps)
