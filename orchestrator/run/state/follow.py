"""Follows runs to their ends. It reads folders often, and queries the scheduler at growing intervals."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.poll import standing
from torusrun.orchestrator.run.state.record import Record, read_record
from torusrun.orchestrator.run.state.view import View

LOOK_S = 0.5
WAITING_LOOK_S = 2.0  # between looks at a run that is not running
OVER_LOOK_S = 30.0  # and at a run that is over: a user may resume it
FIRST_POLL_S = 1.0
SLOWEST_POLL_S = 30.0
RECORDS_LAG_S = 30.0  # a job leaves Grid Engine's and Slurm's queue seconds before their records have its end
REST = 40  # the rest after a look, in multiples of its processor time: many users share a login node
LONGEST_REST_S = 5.0

Signature = tuple[int, int, int]


def follow(run: RunFolder) -> Iterator[View]:
    """Views of a run until it is over, or until it is clear that its end stays unknown. The last view is its end."""
    for (view,) in follow_all([run]):
        yield view


def follow_all(runs: Sequence[RunFolder]) -> Iterator[list[View]]:
    """The views of many runs, in their order, repeated until all are over."""
    followed = Followed(runs)
    while True:
        yield followed.look()
        if followed.over:
            return
        time.sleep(followed.rest_s)


class Followed:
    """Many runs, followed together. A folder is read again if its ledger or its end record has changed."""

    def __init__(self, runs: Sequence[RunFolder]) -> None:
        self._folders = list(runs)
        self._runs: list[_Followed] = []
        self._delay_s = FIRST_POLL_S
        self._poll_s = self._cost_s = 0.0

    @property
    def over(self) -> bool:
        """Whether no run will change by itself; False before the first look."""
        return bool(self._runs or not self._folders) and all(run.over for run in self._runs)

    @property
    def rest_s(self) -> float:
        """The seconds to wait before the next look."""
        return min(max(LOOK_S, REST * self._cost_s), max(LOOK_S, LONGEST_REST_S))

    def look(self) -> list[View]:
        """The current views of all runs, in the order in which they were given."""
        if not self._runs:
            self._runs = [_Followed(record, status) for record, status in standing(self._folders, time.time())]
            self._poll_s = time.monotonic() + self._delay_s
            return [run.view for run in self._runs]
        began_s = time.thread_time()
        asked = [run for run in self._runs if run.due and run.look()]
        if time.monotonic() >= self._poll_s:
            asked += [run for run in self._runs if not run.over and run not in asked]
            self._delay_s = min(self._delay_s * 1.5, SLOWEST_POLL_S)
            self._poll_s = time.monotonic() + self._delay_s
        for run, known in zip(asked, standing([run.folder for run in asked], time.time()), strict=True):
            run.take(*known)
        self._cost_s = time.thread_time() - began_s
        return [run.view for run in self._runs]


@dataclass(eq=False)
class _Followed:
    """One followed run and its last view. Times are of time.monotonic()."""

    record: Record
    status: Status

    def __post_init__(self) -> None:
        self.seen_s = self.looked_s = time.monotonic()  # seen_s: when it was last neither LOST nor hopeless
        self.files = _files(self.record)
        self.take(self.record, self.status)

    @property
    def folder(self) -> RunFolder:
        return self.record.folder

    @property
    def over(self) -> bool:
        """Whether its end is known, or was unknown for so long that it stays unknown."""
        if self.status.state.certain:
            return True
        interval_s = self.record.plan.poll_interval_s if self.record.plan else 0.0
        return time.monotonic() > self.seen_s + RECORDS_LAG_S + interval_s

    @property
    def running(self) -> bool:
        return self.status.state is State.RUNNING

    @property
    def due(self) -> bool:
        if self.running:
            return True
        return time.monotonic() >= self.looked_s + (OVER_LOOK_S if self.over else WAITING_LOOK_S)

    def take(self, record: Record, status: Status) -> None:
        """Store the newest answers of its folder and its scheduler."""
        self.record, self.status = record, status
        self.view = record.view(status, time.time())
        if status.state is not State.LOST and not record.hopeless:
            self.seen_s = time.monotonic()

    def look(self) -> bool:
        """Check its files, and read them if they have changed; whether its scheduler must be queried now."""
        self.looked_s = time.monotonic()
        before, self.files = self.files, _files(self.record)
        if self.files != before:
            self.record = read_record(self.folder)
        if self.running or self.files != before:
            self.view = self.record.view(self.status, time.time())
        return self.files != before or (self.record.settled and not self.over)


def _files(record: Record) -> tuple[Signature, Signature]:
    """The signatures of the files that change with every event but a step: the ledger and the attempt's end."""
    return _signature(record.folder.ledger), _signature(record.folder.attempt(record.attempt).end)


def _signature(path: Path) -> Signature:
    """Inode, size and time of a file."""
    try:
        status = private.status(path)
    except OSError:
        return 0, 0, 0
    return status.st_ino, status.st_size, status.st_mtime_ns
