"""The ranks that are left of an attempt, with fresh ones for those that it lost: they wait for the next attempt.

Their launcher, their wrappers and their supervisor stay the same processes.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from torusrun.orchestrator.base.errors import TorusrunError
from torusrun.orchestrator.base.private import READABLE, open_regular
from torusrun.orchestrator.folder.end_words import listed
from torusrun.orchestrator.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.job.standby import word
from torusrun.orchestrator.job.standby.ready_ranks import ReadyRanks
from torusrun.orchestrator.planning.plan import Plan

WAIT_S = 3.0  # how long the records that they wait may take to appear here
LOOK_S = 0.02


class Survivors(ReadyRanks):
    """What is left of `attempt`: its `launcher`, whose messages are in `messages`, and the wrappers below it."""

    def __init__(self, plan: Plan, attempt: Attempt, launcher: subprocess.Popen[bytes], messages: Path) -> None:
        super().__init__(plan, attempt)
        self._begun, self.messages = launcher, messages

    def following(self, channel: socket.socket) -> tuple[int, str] | None:
        """Wait for the word of the job: (the next attempt, the job's name); None if there is none, and all are ended.

        From the return on, the output and the variables of this process are those of the next attempt.
        """
        signal.signal(signal.SIGTERM, _end)
        found = None
        try:
            if (found := word.awaited(channel)) is None:
                return None
            run = RunFolder(self.attempt.folder.parents[1])
            following = run.attempt(found["attempt"])
            _write_to(following)
            os.chdir(following.folder)
            os.environ.update(found["variables"])
            which = f"attempt {following.number} of {run.run_id}, job {found['job']}"
            print(f"torusrun: {which}, continues in the processes that are left", flush=True)
            return following.number, found["job"]
        except (TorusrunError, OSError) as error:
            print(f"torusrun: {error}", file=sys.stderr)
            found = None
            return None
        finally:
            if found is None:
                self.end()

    def _why_not(self, following: Attempt) -> str:
        until_s, ranks = time.monotonic() + WAIT_S, range(len(self.placement.slots))
        while missing := [rank for rank in ranks if not self.attempt.rank_standby(rank).exists()]:
            if time.monotonic() > until_s or self._begun is None or self._begun.poll() is not None:
                return f"{listed(missing)}: no process is ready"
            time.sleep(LOOK_S)
        return super()._why_not(following)


def _write_to(attempt: Attempt) -> None:
    """Write the output of this process where that of the attempt belongs."""
    for stream, path in ((1, attempt.stdout), (2, attempt.stderr)):
        file = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, READABLE)
        os.dup2(file, stream)
        os.close(file)


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
