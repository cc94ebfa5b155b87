"""Watches an attempt for hangs: suspects a hang, queries the ranks, and decides that the attempt has to end.

It records slow ranks, too. The signs of progress are small files that ranks, their wrappers and the relay write.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import read_object
from torusrun.orchestrator.base.private import READABLE, read_bytes, status, write_bytes
from torusrun.orchestrator.base.whole_lines import TAIL_BYTES
from torusrun.orchestrator.job import gather
from torusrun.orchestrator.job.gather import RankRecords
from torusrun.orchestrator.job.hangs.hang import Pause, Where, hung, silent, symptom
from torusrun.orchestrator.job.hangs.patience import NEVER, OTHER_S, REPORTS, UNKNOWN, Patience, Sign, Symptom
from torusrun.orchestrator.job.load.monitor import LEAST_S, MOST_PER_S
from torusrun.orchestrator.place.placement.mapping import Placement
from torusrun.orchestrator.run.folder import attempt_folders, ledger, metrics
from torusrun.orchestrator.run.folder.at_work import Beat, NodeLoad, Slow, host_pulse_s, slow_ranks
from torusrun.orchestrator.run.folder.events import Started
from torusrun.orchestrator.run.folder.records import NO_ROOM, End
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.state.pace import step_s
from torusrun.training.reporting.heartbeat import STEPS

ANSWER_S = 5.0  # how long the wrappers may take to answer where their ranks are
WRITTEN_S = 0.5  # a stack is written in several pieces
STARTING_S = 300.0  # at least, before the first sign of progress, while Python and data load
PROBED_S = 2.0  # without a sign of progress before the disk is tried
PULSES = 5  # that a silent host has left out, at least
MOST_NODES = 50  # whose records are read in a pause
LARGEST_WORD_BYTES = 256
OTHER_WORK = "other work"  # that the program announced by a word
CONFIRMED = 2  # looks that must agree on the slow ranks


class HangWatch:
    """Decides from the signs of an attempt, once a second, whether it has to end. `query` asks the wrappers.

    Services have limits of their own: `besides` says how many bytes of the metrics are theirs, which are no sign, and
    `awaited` whether the main role may wait for a service, which is no pause.
    """

    def __init__(
        self,
        plan: Plan,
        run: RunFolder,
        attempt: Attempt,
        placement: Placement,
        query: Callable[[], None],
        besides: Callable[[], int] = lambda: 0,
        awaited: Callable[[], bool] = lambda: False,
    ) -> None:
        self._awaited = awaited
        self._plan, self._run, self._attempt, self._placement, self._query = plan, run, attempt, placement, query
        self._ranks = placement.grid.ranks
        self._records = RankRecords(attempt)
        ours, named_s = not plan.run.command, plan.run.hang_timeout_s
        other_s = OTHER_S if ours else NEVER
        self._signs = Signs(run, attempt, placement, ours=ours, besides=besides)
        former_s = former_step_s(run, attempt.number, placement) if ours else None
        start_s = max(STARTING_S, named_s or other_s)
        self._patience = Patience(time.monotonic(), named_s, other_s, start_s, former_s)
        self._pulse_s = host_pulse_s(len(placement.hosts))
        self._listened_s = 0.0
        self._queried_s: float | None = None  # when the query was sent to which answers may still come
        self._where: Mapping[int, Where] = {}
        self._answered_idle_s = 0.0
        self._before: Mapping[int, Where] = {}
        self._full = False  # whether the disk had no room at a look in this pause

    def look(self, now_s: float) -> End | None:
        """The attempt's end if it hangs, else None."""
        paused = self._patience.idle_s > PROBED_S
        sign = self._signs.now(queried=self._queried_s is not None, paused=paused)
        counts = not paused or (self._disk_answers() and not self._awaited())
        if self._patience.observe(now_s, sign, counts=counts):
            self._queried_s, self._where, self._before, self._full = None, {}, {}, False
            return None
        if self._queried_s is None and self._patience.asks():
            self._send(now_s)
        elif self._queried_s is not None and self._answered(now_s):
            self._read()
        if (what := self._patience.over) and what is self._shown():  # a rank may have ended since
            pause = self._pause(self._patience.limits.of(what))
            return hung(self._placement, self._where, pause, self._records.ends)
        return self._silent(now_s)

    def _send(self, now_s: float) -> None:
        for rank in self._records.answered():  # to an earlier query
            with contextlib.suppress(OSError):
                self._attempt.rank_seen(rank).unlink(missing_ok=True)
        self._query()
        self._queried_s = now_s

    def _answered(self, now_s: float) -> bool:
        """Whether all wrappers have answered, or have had enough time."""
        since_s = now_s - (self._queried_s or 0.0)
        return since_s > ANSWER_S or (since_s > WRITTEN_S and self._records.answered().issuperset(self._running()))

    def _read(self) -> None:
        self._before, self._where = self._where, self._records.where(self._running())
        self._answered_idle_s = self._patience.idle_s
        self._queried_s = None
        self._patience.answered(self._shown())

    def _running(self) -> list[int]:
        """The ranks without a record of an end: the others never answer again."""
        self._records.read()
        return [rank for rank in range(self._ranks) if rank not in self._records.ends]

    def _shown(self) -> Symptom:
        """What the newest answers of the ranks that run show. On a full disk a wrapper may be unable to answer."""
        shown = symptom(self._running(), self._where, self._before, self._answered_idle_s)
        return Symptom.UNKNOWN if shown is Symptom.SILENT and self._full else shown

    def _silent(self, now_s: float) -> End | None:
        """The end by a host without a sign of life while no step comes."""
        limits = self._patience.limits
        if self._patience.idle_s < limits.query_s or now_s < self._listened_s + self._pulse_s:
            return None
        self._listened_s = now_s
        limit_s = max(limits.host_s, PULSES * self._pulse_s)
        step = gather.known_step(self._run, self._attempt)
        self._records.read()
        silences_s = gather.silences(self._attempt, self._placement, self._records.ends)
        return silent(self._placement, silences_s, limit_s, step)

    def _pause(self, limit_s: float) -> Pause:
        start = "a program that reports nothing" if self._plan.run.command else "the start"
        doing = self._patience.doing if self._patience.doing != UNKNOWN else start
        return Pause(self._patience.idle_s, limit_s, gather.known_step(self._run, self._attempt), doing)

    def _disk_answers(self) -> bool:
        """Whether a small file can be written, or is refused for want of room, which is an answer, too.

        An NFS client then also looks for new files of other hosts in this folder.
        """
        try:
            write_bytes(self._attempt.probe, b"\n", READABLE)
        except OSError as error:
            full = error.errno in NO_ROOM
            self._full = self._full or full
            return full
        return True


def former_step_s(run: RunFolder, number: int, placement: Placement) -> float | None:
    """The mean time of a step in attempts before `number` whose grid and number of hosts were the same: the shortest.

    Pauses are part of a mean, and a slow first step is most of that of a short attempt. None if no such attempt
    recorded two steps.
    """
    try:
        rows = metrics.read(run.metrics, TAIL_BYTES)
    except SiteError:
        return None
    began = {event.attempt: event for event in ledger.events(run.ledger) if isinstance(event, Started)}
    same = (
        earlier
        for earlier, event in began.items()
        if earlier < number and event.grid == placement.grid.dims and len(event.hosts) == len(placement.hosts)
    )
    return min((time_s for earlier in same if (time_s := step_s(rows, earlier)) is not None), default=None)


class Signs:
    """Reads the newest sign; `ours` says whether the ranks run our training, which reports what it does."""

    def __init__(
        self,
        run: RunFolder,
        attempt: Attempt,
        placement: Placement,
        *,
        ours: bool,
        besides: Callable[[], int] = lambda: 0,  # bytes of the metrics that are no sign
    ) -> None:
        self._run, self._attempt, self._ours, self._besides = run, attempt, ours, besides
        self._first = [slot.rank for slot in placement.slots if slot.local_rank == 0][:MOST_NODES]
        self._metrics_bytes = self._written()
        self._reached = 0
        self._log_bytes = self._stacks_bytes = 0

    def now(self, *, queried: bool = False, paused: bool = False) -> Sign:
        """The newest sign. While the ranks are `queried`, they write their stacks to their logs, which is no progress.

        If the training has `paused`, other nodes are read, too: rank 0's node alone may have lost the disk.
        """
        written, grown = self._written(), self._log(queried)
        if beat := Beat.read(self._attempt.beat) if self._ours else None:
            self._reached = max(self._reached, beat.step, *(self._steps() if paused else ()))
            return Sign(beat.doing, (beat.doing, self._reached, written))
        begun, staged = written != self._metrics_bytes, staged_bytes(self._attempt)
        if self._ours:  # without a report of its steps
            return Sign(REPORTS, written) if begun else Sign(UNKNOWN, (grown, staged, self._records()))
        if touched := self._heartbeat():
            return Sign(touched[0], (*touched, written))
        return Sign(REPORTS if begun else UNKNOWN, (written, grown, staged))

    def _written(self) -> int:
        """The bytes of the metrics of the ranks that are watched."""
        return size(self._run.metrics) - self._besides()

    def _records(self) -> int:
        """How many ranks have begun, and have ended."""
        recorded = attempt_folders.recorded(self._attempt)
        return len(recorded["start"]) + len(recorded["end"])

    def _log(self, queried: bool) -> int:
        """The bytes of rank 0's log, without those that were added while the ranks were queried."""
        bytes_ = size(self._attempt.rank_log(0))
        self._stacks_bytes += bytes_ - self._log_bytes if queried else 0
        self._log_bytes = bytes_
        return bytes_ - self._stacks_bytes

    def _steps(self) -> list[int]:
        """The newest steps that the ranks of all nodes reported to their wrappers."""
        loads = (NodeLoad.read(self._attempt.node_load(rank)) for rank in self._first)
        return [rank.step for load in loads if load for rank in load.ranks]

    def _heartbeat(self) -> tuple[str, str, int] | None:
        """(what the program does, what it wrote into its heartbeat, when); None if it never wrote."""
        path = self._attempt.heartbeat
        with contextlib.suppress(OSError):
            touched = status(path).st_mtime_ns
            wrote = " ".join(read_bytes(path, LARGEST_WORD_BYTES).decode(errors="replace").split())
            return (STEPS if not wrote or wrote.isdigit() else OTHER_WORK), wrote, touched
        return None


def staged_bytes(attempt: Attempt) -> int:
    """The bytes that the attempt's hosts have staged before their ranks start."""
    with contextlib.suppress(SiteError, TypeError, ValueError):
        return int((read_object(attempt.staged) or {}).get("written_bytes", 0))
    return 0


def size(path: Path) -> int:
    """The bytes in a file, 0 if there is none."""
    try:
        return status(path).st_size
    except OSError:
        return 0


class SlowWatch:
    """Reads the records as often as they are written, and keeps `ranks/slow.json`, which `status` reads."""

    def __init__(self, attempt: Attempt, placement: Placement) -> None:
        self._attempt = attempt
        self._first = {slot.host: slot.rank for slot in placement.slots if slot.local_rank == 0}
        self._every_s = max(LEAST_S, len(self._first) / MOST_PER_S)
        self._due_s = 0.0
        self._agreed, self._seen = 0, frozenset[int]()
        self._written = frozenset[int]()

    def look(self, now_s: float) -> None:
        """Read the records if they are due, and record a change that CONFIRMED looks agree on."""
        if now_s < self._due_s:
            return
        self._due_s = now_s + self._every_s
        loads = {host: NodeLoad.read(self._attempt.node_load(rank)) for host, rank in self._first.items()}
        slowest = slow_ranks({host: load.ranks for host, load in loads.items() if load})
        ranks = frozenset(slowest.ranks if slowest else ())
        self._agreed = self._agreed + 1 if ranks == self._seen else 1
        self._seen = ranks
        if self._agreed >= CONFIRMED and ranks != self._written:
            self._record(slowest)
            self._written = ranks

    def _record(self, slowest: Slow | None) -> None:
        with contextlib.suppress(SiteError, OSError):  # a full disk
            if slowest:
                slowest.write(self._attempt.slow)
            else:
                self._attempt.slow.unlink(missing_ok=True)
