"""Reads the records of ranks in an attempt's folder: ends, logs, progress, and their launcher's messages."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import read_object
from torusrun.orchestrator.base.proc import Work
from torusrun.orchestrator.base.typed import kept_record
from torusrun.orchestrator.base.whole_lines import TAIL_BYTES, tail
from torusrun.orchestrator.job.hangs.hang import NOT_BEGUN, Where, stack
from torusrun.orchestrator.job.witness import words
from torusrun.orchestrator.place.placement.mapping import Placement
from torusrun.orchestrator.run.folder import metrics
from torusrun.orchestrator.run.folder.attempt_folders import recorded
from torusrun.orchestrator.run.folder.log_errors.last_error import LoggedError, read_last
from torusrun.orchestrator.run.folder.records import RankEnd
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.schedulers.launchers.launcher import Words
from torusrun.training.checkpoint.manifest import TEMPORARY_PREFIX
from torusrun.training.reporting.events import STEP

STACK_LINES = 400  # that may hold a main thread: faulthandler writes up to 100 frames of each


class RankRecords:
    """The records of an attempt's ranks, read as they appear."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.ends: dict[int, RankEnd] = {}
        self._errors: dict[int, LoggedError] = {}

    def read(self) -> None:
        """Read the ends that are new since the last call; those that cannot be read are tried again at the next."""
        for rank in recorded(self.attempt)["end"] - self.ends.keys():
            with contextlib.suppress(SiteError):
                self.ends[rank] = RankEnd.read(self.attempt.rank_end(rank))

    @property
    def told(self) -> set[int]:
        """The ranks that received a request to stop."""
        return {*recorded(self.attempt)["told"], *(end.rank for end in self.ends.values() if end.told)}

    def error(self, rank: int) -> LoggedError:
        """The error in the log of a rank that has ended."""
        if rank not in self._errors:
            self._errors[rank] = read_last(self.attempt.rank_log(rank))
        return self._errors[rank]

    def lines(self, rank: int, most: int) -> list[str]:
        """The last lines of a rank's log."""
        return [line.decode(errors="replace") for line in tail(self.attempt.rank_log(rank)) if line.strip()][-most:]

    def answered(self) -> set[int]:
        """The ranks whose wrappers have answered where they are."""
        return recorded(self.attempt)["seen"]

    def where(self, ranks: Iterable[int]) -> dict[int, Where]:
        """Where the ranks were at the query, for those that answered or have not begun."""
        found = {}
        for rank in ranks:
            with contextlib.suppress(SiteError, OSError):
                if seen := read_object(self.attempt.rank_seen(rank)):
                    shown = seen.get("stack") is not False  # else the newest in the log is of an earlier query
                    frames = stack(self.lines(rank, STACK_LINES)) if shown else []
                    work = kept_record(self.attempt.rank_seen(rank), Work, kept) if (kept := seen.get("work")) else None
                    found[rank] = Where(str(seen.get("process")), frames, seen.get("disk") is True, work)
                elif not self.attempt.rank_start(rank).exists():
                    found[rank] = Where(NOT_BEGUN)
        return found

    def launcher_said(self) -> Words:
        """The launcher's messages in the standard error of the attempt."""
        return words(b"\n".join(tail(self.attempt.stderr)).decode(errors="replace"))


def silences(attempt: Attempt, placement: Placement, over: Collection[int] = ()) -> dict[str, float]:
    """For each host, how many seconds longer it is silent than the host that was heard last.

    Times are of the file system's clock, which all hosts share. A host whose first rank, which gives its signs of life,
    has not begun or is one of the ranks that are `over` is left out.
    """
    heard: dict[str, float] = {}
    for slot in placement.slots:
        if slot.local_rank == 0 and slot.rank not in over:
            with contextlib.suppress(OSError):
                heard[slot.host] = private.status(attempt.rank_start(slot.rank)).st_mtime
    newest_s = max(heard.values(), default=0.0)
    return {host: newest_s - heard_s for host, heard_s in heard.items()}


def newest_step(run: RunFolder, attempt: Attempt) -> int | None:
    """The newest step of an attempt, or None before the first. Raises SiteError if the metrics cannot be read."""
    row = metrics.newest(metrics.read(run.metrics, TAIL_BYTES), STEP)
    return row.get("step") if row and row["attempt"] == attempt.number else None


def known_step(run: RunFolder, attempt: Attempt) -> int | None:
    """The newest step of an attempt, or None before the first or if the metrics cannot be read."""
    with contextlib.suppress(SiteError):
        return newest_step(run, attempt)
    return None


def writes_checkpoint(run: RunFolder, attempt: Attempt) -> bool:
    """Whether an attempt of our training has begun to write a checkpoint that is not complete."""
    return any(run.checkpoints.glob(f"{TEMPORARY_PREFIX}step-*-{attempt.number}"))
