"""The lines of a run's logs in the order of time, chosen by rank, attempt, time and pattern; or its failures alone."""

from __future__ import annotations

import heapq
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from pathlib import Path

from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.run.folder.log_errors.last_error import read_last
from torusrun.orchestrator.run.folder.log_errors.tracebacks import bare
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.follow import follow
from torusrun.orchestrator.show.logs.files import (
    BLOCK_BYTES,
    TAIL_LINES,
    FollowedFile,
    LogLine,
    Logs,
    all_logs,
    logs,
    named,
    tail,
)
from torusrun.orchestrator.show.logs.ranks import bad_ends, who
from torusrun.training.counted import first_of

SMALLEST_BLOCK_BYTES = 4096
ALL_BLOCKS_BYTES = 32 << 20  # of all files that are read together
FIRST = float("-inf")


def new_lines(files: Sequence[FollowedFile], *, whole: bool) -> Iterator[LogLine]:
    """The new lines of all files in order; without `whole` also unfinished lines."""
    share = ALL_BLOCKS_BYTES // max(len(files), 1)
    for file in files:
        file.block_bytes = min(max(share, SMALLEST_BLOCK_BYTES), BLOCK_BYTES)
    return in_order([file.new(whole=whole) for file in files])


def in_order(files: Sequence[Iterable[LogLine]]) -> Iterator[LogLine]:
    """The lines of all files by time. The lines of one file keep their order, regardless of its clock.

    A line without a time follows the line before it; files without any times come first, one after the other. Of lines
    with equal times, those of the earlier file come first.
    """
    if len(files) == 1:
        yield from files[0]
        return
    for _, line in heapq.merge(*map(_keyed, files), key=itemgetter(0)):
        yield line


def _keyed(lines: Iterable[LogLine]) -> Iterator[tuple[float, LogLine]]:
    latest_s = FIRST
    for line in lines:
        if line.time_s is not None and line.time_s > latest_s:
            latest_s = line.time_s
        yield latest_s, line


LAST_BYTES = 1 << 28  # of a file, in which its last lines are searched


@dataclass(frozen=True)
class Filter:
    """Selects lines: of a `rank`, or of the job and all ranks (None); of an attempt, the newest (None), or all (0).

    `since_s` (as of time.time()) leaves out earlier lines; a line with an unknown time stays. Of the lines that exist
    already, the last `last` are kept; None: all.
    """

    rank: int | None = None  # among those of `role`
    attempt: int | None = None
    since_s: float | None = None
    pattern: re.Pattern[str] | None = None
    last: int | None = None
    role: str = ""  # '': of `rank` the main role, else all

    @property
    def chooses(self) -> bool:
        """Whether it leaves lines out by what they are."""
        return self.pattern is not None or self.since_s is not None

    def meets(self, line: LogLine) -> bool:
        if self.since_s is not None and line.time_s is not None and line.time_s < self.since_s:
            return False
        return self.pattern is None or self.pattern.search(line.text) is not None


def failures(logs: Logs, role: str = "") -> Iterator[LogLine]:
    """The last error of the job and of each rank (or of those of a role), each once, then those that failed, by time.

    The rank that ended first comes first. A rank without such an error has its last lines.
    """
    ends = [end for end in bad_ends(logs.attempt) if role in ("", end.role)]
    bad = sorted(ends, key=lambda end: end.cut_off)
    order = {logs.attempt.rank_log(end.rank): place for place, end in enumerate(bad)}
    first, also = dict[tuple[str, ...], str](), dict[str, list[str]]()
    told: set[Path] = set()
    for origin, path in sorted(logs.files(role=role), key=lambda file: order.get(file[1], len(order))):
        if not (error := read_last(path)).known:
            continue
        told.add(path)
        alike = tuple(bare(line)[1] for line in error.lines)
        if first.setdefault(alike, origin) != origin:
            also.setdefault(first[alike], []).append(who(origin))
            continue
        yield from (LogLine(None, origin, line) for line in error.lines)
    for origin, others in also.items():
        yield LogLine(None, "", f"(the error of {who(origin)} is also that of {first_of(others)})")
    for end in ends:
        yield LogLine(end.ended_s, logs.name, plain(end.words))
        if (path := logs.attempt.rank_log(end.rank)) not in told:
            yield from (LogLine(None, logs.origin(end.rank), line) for line in tail(path, TAIL_LINES))


@dataclass
class Reading:
    """The reading of a run's logs. Raises UserError if there is no such rank or attempt."""

    run: RunFolder
    filter: Filter
    logs: list[Logs] = field(default_factory=list, init=False)
    _files: dict[Path, FollowedFile] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._find()

    @property
    def newest(self) -> Logs:
        return self.logs[-1]

    def lines(self, *, until_over: bool = False) -> Iterator[LogLine]:
        """The existing lines, by attempt and then by time; with `until_over` also the later ones."""
        yield from self._last(self._new(whole=not final) for final in self._looks(until_over))

    def failures(self) -> Iterator[LogLine]:
        """The errors and the failed ranks, by attempt."""
        role = self.filter.role
        yield from self._last([chain.from_iterable(self._shown(logs, failures(logs, role)) for logs in self.logs)])

    def _last(self, looks: Iterable[Iterator[LogLine]]) -> Iterator[LogLine]:
        """The lines of all looks; of the first look only the last lines if the filter says so."""
        most = self.filter.last
        for lines in looks:
            yield from lines if most is None else deque(lines, maxlen=most)
            most = None

    def _looks(self, until_over: bool) -> Iterator[bool]:
        """False for each look at the files until the run is over, then True for the last look."""
        if until_over:
            for _ in follow(self.run):
                self._find()
                yield False
        yield True

    def _find(self) -> None:
        """Look for new attempts. The attempt before them may still write its last lines."""
        newest = all_logs(self.run) if self.filter.attempt == 0 else [logs(self.run, self.filter.attempt)]
        new = {known.attempt.number for known in newest}
        self.logs = named([*(known for known in self.logs if known.attempt.number not in new), *newest])
        self.newest.rank(self.filter.rank or 0, self.filter.role)  # raises for a mistake

    def _new(self, *, whole: bool) -> Iterator[LogLine]:
        for attempt in self.logs:
            of_rank = attempt.files(attempt.rank(self.filter.rank, self.filter.role), self.filter.role)
            files = [self._file(*file) for file in of_rank if self._may_have(file[1])]
            yield from self._shown(attempt, new_lines(files, whole=whole))

    def _file(self, origin: str, path: Path) -> FollowedFile:
        if path not in self._files:
            self._files[path] = FollowedFile(origin, path)
            if self.filter.last is not None and not self.filter.chooses:
                self._files[path].begin_with_last(self.filter.last, LAST_BYTES)
        file = self._files[path]
        file.origin = origin  # attempts get names if there are several
        return file

    def _may_have(self, path: Path) -> bool:
        """Whether a file was written since `since_s`."""
        try:
            return self.filter.since_s is None or os.lstat(path).st_mtime >= self.filter.since_s
        except OSError:
            return True

    def _shown(self, logs: Logs, lines: Iterable[LogLine]) -> Iterable[LogLine]:
        """The lines that meet the filter; of another user's run, safe to print."""
        chosen = filter(self.filter.meets, lines) if self.filter.chooses else lines
        if logs.record.mine:
            return chosen
        return (LogLine(line.time_s, logs.safe(line.origin), logs.safe(line.text)) for line in chosen)
