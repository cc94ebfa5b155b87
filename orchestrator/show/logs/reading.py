"""The lines of a run's logs in the order of time, chosen by rank, attempt, time and pattern; or its failures alone."""

from __future__ import annotations

import heapq
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.run.folder.log_errors.lines import bare
from torusrun.orchestrator.run.folder.log_errors.tracebacks import Tracebacks
from torusrun.orchestrator.run.folder.records import RankEnd
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.follow import follow
from torusrun.orchestrator.show.logs.files import (
    BLOCK_BYTES,
    TAIL_LINES,
    FollowedFile,
    LogLine,
    Logs,
    all_logs,
    bad_ends,
    logs,
    named,
    tail,
    who,
)
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
    """Selects lines: of a `rank`, or the job and all ranks (None); of an attempt, the newest (None), or all (0).

    `since_s` (as of time.time()) leaves out earlier lines; a line with an unknown time stays. Of the lines that exist
    already, the last `last` are kept; None: all.
    """

    rank: int | None = None
    attempt: int | None = None
    since_s: float | None = None
    pattern: re.Pattern[str] | None = None
    last: int | None = None

    @property
    def chooses(self) -> bool:
        """Whether it leaves lines out by what they are."""
        return self.pattern is not None or self.since_s is not None

    def meets(self, line: LogLine) -> bool:
        if self.since_s is not None and line.time_s is not None and line.time_s < self.since_s:
            return False
        return self.pattern is None or self.pattern.search(line.text) is not None


MOST_READ, READ_BYTES = 100_000, 8 << 20  # of the end of a log that exists already


class Failures:
    """The failures of one attempt, each reported once, in the order in which they are found.

    `since_s` (as of time.time()) leaves out earlier lines. Only the last READ_BYTES of a log that exists are read.
    """

    def __init__(self, logs: Logs, since_s: float | None = None) -> None:
        self.logs, self._since_s = logs, since_s
        self._files: dict[Path, tuple[FollowedFile, Tracebacks[LogLine]]] = {}
        self._told: dict[tuple[str, ...], str] = {}
        self._with_traceback: set[Path] = set()
        self._ended: set[int] = set()
        self._cut: set[Path] = set()  # the logs of which only the end is read

    def new(self, *, final: bool) -> Iterator[LogLine]:
        """Every traceback of the job and of the ranks once, then the failed ranks, with their last lines.

        The rank that ended first comes first. A rank with a reported traceback has no last lines. Unless `final` is
        set, a traceback that may continue is left for the next call.
        """
        also: dict[str, list[str]] = {}  # first origin of a traceback -> other origins of the same
        for origin, path in self._files_by_time():
            known = path in self._files
            for block in self._new_blocks(path, final):
                self._with_traceback.add(path)
                if first := self._told.get(alike := tuple(bare(line.text)[1] for line in block)):
                    also.setdefault(first, []).append(who(origin))
                    continue
                self._told[alike] = origin
                yield from (line._replace(origin=origin) for line in block)
            if path in self._cut and not known:
                yield LogLine(None, "", f"(of the log of {who(origin)}, the last {READ_BYTES >> 20} MiB were searched)")
        yield from _the_same(also)
        for end in bad_ends(self.logs.attempt):
            if end.rank not in self._ended and (self._since_s is None or end.ended_s >= self._since_s):
                self._ended.add(end.rank)
                yield from self._end(end)

    def _files_by_time(self) -> list[tuple[str, Path]]:
        """The files of the job and of all ranks: those of ranks that failed come first, in the order of their ends."""
        bad = sorted(bad_ends(self.logs.attempt), key=lambda end: end.cut_off)
        order = {self.logs.attempt.rank_log(end.rank): place for place, end in enumerate(bad)}
        return sorted(self.logs.files(), key=lambda file: order.get(file[1], len(order)))

    def _new_blocks(self, path: Path, final: bool) -> Iterator[Sequence[LogLine]]:
        if path not in self._files:
            self._files[path] = FollowedFile("", path), Tracebacks()
            self._cut |= {path} if self._files[path][0].begin_with_last(MOST_READ, READ_BYTES) else set()
        file, blocks = self._files[path]
        for line in file.new(whole=not final):
            if self._since_s is None or line.time_s is None or line.time_s >= self._since_s:
                blocks.add(line.text, line)
        return (block.rows for block in blocks.taken(final=final))

    def _end(self, end: RankEnd) -> Iterator[LogLine]:
        yield LogLine(end.ended_s, self.logs.name, plain(end.words))
        ((_, path),) = self.logs.files(end.rank)
        if path not in self._with_traceback:
            origin = f"{self.logs.name}{end.rank:{len(str(self.logs.ranks - 1))}} | "
            yield from (LogLine(None, origin, line) for line in tail(path, TAIL_LINES))


def _the_same(also: dict[str, list[str]]) -> Iterator[LogLine]:
    for first, others in also.items():
        names = list(dict.fromkeys(others))
        yield LogLine(None, "", f"(the traceback of {who(first)} is also that of {first_of(names)})")


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

    def failures(self, *, until_over: bool = False) -> Iterator[LogLine]:
        """Tracebacks and failed ranks, by attempt; with `until_over` also the later ones."""
        found: dict[int, Failures] = {}
        yield from self._last(self._new_failures(found, final=final) for final in self._looks(until_over))

    def _new_failures(self, found: dict[int, Failures], *, final: bool) -> Iterator[LogLine]:
        for one in self.logs:
            kept = found.setdefault(one.attempt.number, Failures(one, self.filter.since_s))
            kept.logs = one  # attempts get names if there are several
            yield from self._shown(one, kept.new(final=final))

    def _last(self, looks: Iterable[Iterator[LogLine]]) -> Iterator[LogLine]:
        """The lines of all looks, of the first one only the last lines if the filter says so."""
        most = self.filter.last
        for lines in looks:
            yield from lines if most is None else deque(lines, maxlen=most)
            most = None

    def _looks(self, until_over: bool) -> Iterator[bool]:
        """False for each look at the files until the run is over, then True for the last one."""
        if until_over:
            for _ in follow(self.run):
                self._find()
                yield False
        yield True

    def _find(self) -> None:
        """Look for new attempts. The one before may still write its last lines."""
        found = all_logs(self.run) if self.filter.attempt == 0 else [logs(self.run, self.filter.attempt)]
        new = {one.attempt.number for one in found}
        self.logs = named([*(one for one in self.logs if one.attempt.number not in new), *found])
        self.newest.check(self.filter.rank)

    def _new(self, *, whole: bool) -> Iterator[LogLine]:
        for one in self.logs:
            files = [self._file(*found) for found in one.files(self.filter.rank) if self._may_have(found[1])]
            yield from self._shown(one, new_lines(files, whole=whole))

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

    def _shown(self, one: Logs, lines: Iterable[LogLine]) -> Iterable[LogLine]:
        """The lines that meet the filter; of another user's run, safe to print."""
        chosen = filter(self.filter.meets, lines) if self.filter.chooses else lines
        if one.record.mine:
            return chosen
        return (LogLine(line.time_s, one.safe(line.origin), one.safe(line.text)) for line in chosen)
