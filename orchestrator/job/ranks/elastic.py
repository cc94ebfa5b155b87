"""A rank's program that continues in later attempts, until it is lost itself; then another one takes its place.

If the run has a standby, the other one has imported everything by then, in most cases.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from typing import IO

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.folder.records import Meaning
from torusrun.orchestrator.job.ranks.standby import StandbyProgram
from torusrun.orchestrator.job.start.launch_order import Rank
from torusrun.training import standby

STAYS = (Meaning.FAILED, Meaning.CUT_OFF)  # after such an end the next attempt may need the rank again
SPARE_S = 10.0  # after the start of an attempt, for its first steps


class ElasticProgram(StandbyProgram):
    """The program of the ranks that its wrapper has in one attempt after the other, `rank` first."""

    def __init__(self, rank: Rank, held: contextlib.ExitStack) -> None:
        self._rank, self._launcher, self._held = rank, os.getppid(), held
        self._begun = self.leaves = False
        self.superseded = False  # whether a newer attempt began elsewhere
        self._spare: StandbyProgram | None = None
        self._spare_s = 0.0

    def begin(self, rank: Rank, lock: int, log: IO[bytes], held: contextlib.ExitStack) -> subprocess.Popen[bytes]:
        """Have the program begin as `rank`, as `beginning.begin` does."""
        self._rank, self._spare_s, self.leaves = rank, time.monotonic() + SPARE_S, False
        if not self._begun:
            self._begun = True
            self._start(rank.order.program.elastic, log, held)
        self._give(rank, lock, log)
        return self._child

    def left(self) -> bool:
        """Whether the program has left its attempt, since another rank is lost, and waits for the next one.

        It is called often.
        """
        self._stand_by()
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            return self._channel.recv(len(standby.CUT_OFF), socket.MSG_DONTWAIT) == standby.CUT_OFF
        return False

    def leave(self) -> None:
        """Have the program leave its attempt; `leaves` is true from now on."""
        self.leaves = True
        with contextlib.suppress(OSError):  # it has just ended
            self._channel.send(standby.LEAVE)

    def renew(self) -> None:
        """If the program has ended, let the spare one be it, or a new one, which imports from now on."""
        if self._child.poll() is None:
            return
        self._channel.close()
        spare, self._spare = self._spare, None
        if spare and spare.lives:
            self._child, self._channel = spare.taken()
        else:
            self._start(self._rank.order.program.elastic, None, self._held)

    def _stand_by(self) -> None:
        """Start the spare program, if the run has a standby."""
        if not self._rank.order.program.standby or self._spare is not None or time.monotonic() <= self._spare_s:
            return
        self._spare_s = float("inf")  # one try in each attempt
        handlers = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)}
        try:
            with contextlib.suppress(SiteError, OSError):  # the rank at work needs no spare
                self._spare = StandbyProgram(self._rank, self._held)
        finally:  # a start ignores them for the program; the rank at work must hear its requests
            for number, handler in handlers.items():
                signal.signal(number, handler)
