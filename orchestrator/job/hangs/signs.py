"""The signs of progress of an attempt, from small files that its ranks, their wrappers and its relay write."""

from __future__ import annotations

import contextlib
from pathlib import Path

from torusrun.orchestrator.base.private import read_bytes, status
from torusrun.orchestrator.job.hangs.patience import REPORTS, UNKNOWN, Sign
from torusrun.orchestrator.place.placement.mapping import Placement
from torusrun.orchestrator.run.folder import attempt_folders
from torusrun.orchestrator.run.folder.beat import Beat
from torusrun.orchestrator.run.folder.node_load import NodeLoad
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.training.reporting.heartbeat import STEPS

MOST_NODES = 50  # whose records are read in a pause
LARGEST_WORD_BYTES = 256
OTHER_WORK = "other work"  # that the program announced by a word


class Signs:
    """Reads the newest sign; `ours` says whether the ranks run our training, which reports what it does."""

    def __init__(self, run: RunFolder, attempt: Attempt, placement: Placement, *, ours: bool) -> None:
        self._run, self._attempt, self._ours = run, attempt, ours
        self._first = [slot.rank for slot in placement.slots if slot.local_rank == 0][:MOST_NODES]
        self._metrics_bytes = size(run.metrics)
        self._reached = 0
        self._log_bytes = self._stacks_bytes = 0

    def now(self, *, queried: bool = False, paused: bool = False) -> Sign:
        """The newest sign. While the ranks are `queried`, they write their stacks to their logs, which is no progress.

        If the training has `paused`, other nodes are read, too: rank 0's node alone may have lost the disk.
        """
        written, grown = size(self._run.metrics), self._log(queried)
        if beat := Beat.read(self._attempt.beat) if self._ours else None:
            self._reached = max(self._reached, beat.step, *(self._steps() if paused else ()))
            return Sign(beat.doing, (beat.doing, self._reached, written))
        begun = written != self._metrics_bytes
        if self._ours:  # without a report of its steps
            return Sign(REPORTS, written) if begun else Sign(UNKNOWN, (grown, self._records()))
        if touched := self._heartbeat():
            return Sign(touched[0], (*touched, written))
        return Sign(REPORTS if begun else UNKNOWN, (written, grown))

    def _records(self) -> int:
        """How many ranks have begun, and have ended."""
        recorded = attempt_folders.recorded(self._attempt)
        return len(recorded["start"]) + len(recorded["end"])

    def _log(self, queried: bool) -> int:
        """The bytes of rank 0's log, without those that were added while the ranks were queried."""
        found = size(self._attempt.rank_log(0))
        self._stacks_bytes += found - self._log_bytes if queried else 0
        self._log_bytes = found
        return found - self._stacks_bytes

    def _steps(self) -> list[int]:
        """The newest steps that the ranks of all nodes reported to their wrappers."""
        loads = (NodeLoad.read(self._attempt.node_load(rank)) for rank in self._first)
        return [rank.step for load in loads if load for rank in load.ranks]

    def _heartbeat(self) -> tuple[str, str, int] | None:
        """(what the program does, what it wrote into its heartbeat, when); None if it never did."""
        path = self._attempt.heartbeat
        with contextlib.suppress(OSError):
            touched = status(path).st_mtime_ns
            wrote = " ".join(read_bytes(path, LARGEST_WORD_BYTES).decode(errors="replace").split())
            return (STEPS if not wrote or wrote.isdigit() else OTHER_WORK), wrote, touched
        return None


def size(path: Path) -> int:
    """The bytes in a file, 0 if there is none."""
    try:
        return status(path).st_size
    except OSError:
        return 0
