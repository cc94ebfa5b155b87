"""What ranks, launcher and the scheduler's daemon left: records in the attempt's folder, logs, progress, messages.

Lost hosts and killed ranks leave no records of their own. The form of a message shows which launcher wrote it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable

from torusrun.orchestrator.base import private, proc
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import read_object
from torusrun.orchestrator.base.proc import Work
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.typed import kept_record
from torusrun.orchestrator.base.whole_lines import TAIL_BYTES, tail
from torusrun.orchestrator.job.hangs.hang import NOT_BEGUN, Where, stack
from torusrun.orchestrator.place.hosts.same_host import same_host
from torusrun.orchestrator.place.placement.mapping import Placement
from torusrun.orchestrator.run.folder import metrics
from torusrun.orchestrator.run.folder.attempt_folders import recorded
from torusrun.orchestrator.run.folder.how_ended import How, ended
from torusrun.orchestrator.run.folder.log_errors.kinds import LineKind, kind_of
from torusrun.orchestrator.run.folder.log_errors.last_error import LoggedError, last_error, read_last
from torusrun.orchestrator.run.folder.records import End, RankEnd
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.schedulers.launchers import FAMILIES, Words
from torusrun.orchestrator.schedulers.remote_shell import FAILED
from torusrun.training.checkpoint.manifest import TEMPORARY_PREFIX
from torusrun.training.reporting.events import STEP

STACK_LINES = 400  # that may hold a main thread: faulthandler writes up to 100 frames of each
LONGEST_QUOTE = 300
SEPARATOR = re.compile(r"[-=]{20,}")
OURS = "torusrun: "


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
        answers = {}
        for rank in ranks:
            with contextlib.suppress(SiteError, OSError):
                if seen := read_object(self.attempt.rank_seen(rank)):
                    shown = seen.get("stack") is not False  # else the newest in the log is of an earlier query
                    frames = stack(self.lines(rank, STACK_LINES)) if shown else []
                    work = kept_record(self.attempt.rank_seen(rank), Work, kept) if (kept := seen.get("work")) else None
                    answers[rank] = Where(str(seen.get("process")), frames, seen.get("disk") is True, work)
                elif not self.attempt.rank_start(rank).exists():
                    answers[rank] = Where(NOT_BEGUN)
        return answers

    def launcher_words(self) -> Words:
        """The launcher's messages in the standard error of the attempt."""
        return words(b"\n".join(tail(self.attempt.stderr)).decode(errors="replace"))


def silences(attempt: Attempt, placement: Placement, over: Collection[int] = ()) -> dict[str, float]:
    """For each host, how many seconds longer it is silent than the host that was heard last.

    Times are of the file system's clock, which all hosts share. A host whose first rank, which gives its signs of life,
    has not begun or is `over` is left out.
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


def words(text: str) -> Words:
    """The content of a launcher's standard error."""
    lost: dict[str, str] = {}
    killed: dict[int, int] = {}
    for launcher in FAMILIES:
        lost |= launcher.lost(text)
        killed |= launcher.killed(text)
    ours = next((line for line in text.splitlines() if line.startswith(FAILED)), "")
    reason = next(filter(None, (launcher.reason(text) for launcher in FAMILIES)), "")
    return Words(lost, killed, reason[:LONGEST_QUOTE] or last(text), ours.removeprefix(OURS))


def lost_hosts(launcher: Words, placement: Placement, here: str) -> list[str]:
    """The hosts that the launcher lost, by their names in the placement; never `here`, the supervisor's own."""
    known = [host for host in placement.hosts if any(same_host(host, other) for other in launcher.lost)]
    return [host for host in known if not same_host(host, here)]


def last(text: str) -> str:
    """The last message on one line: a block between two separators, as MPIs write them, or else the last error."""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(OURS)]
    if lines and SEPARATOR.fullmatch(lines[-1]):
        block = lines[:-1]
        starts = [n for n, line in enumerate(block) if SEPARATOR.fullmatch(line)]
        message = " ".join(block[starts[-1] + 1 if starts else 0 :])
        if kind_of(message) is not LineKind.CLOSING:  # else it only repeats that a process failed
            return message[:LONGEST_QUOTE]
    return last_error([line for line in lines if not SEPARATOR.fullmatch(line)]).reason[:LONGEST_QUOTE]


class Daemon:
    """The process that started the session `leader` (by default our own), as of the time when this object is made."""

    def __init__(self, leader: int | None = None) -> None:
        self.leader = os.getsid(0) if leader is None else leader
        self.pid = proc.parent_of(self.leader)

    @property
    def gone(self) -> bool:
        """Whether the daemon has ended, though the session that it started has not."""
        return self.pid not in (None, 0, 1) and proc.parent_of(self.leader) not in (None, self.pid)

    def blamed(self, end: End, host: str) -> End:
        """`end`, or the end by the lost daemon of this `host` if the daemon is gone and no other cause is certain."""
        known = end.certain and end.state is not State.NODE_FAIL
        if known or end.state is State.COMPLETED or not self.gone:
            return end
        return ended(
            How.DAEMON_GONE, hosts=[host], step=end.step, certain=end.certain, again=end.again,
            host=host, before=end.reason,
        )  # fmt: skip
