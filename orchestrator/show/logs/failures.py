"""Failures in the logs: tracebacks, and failed ends of ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.run.folder import attempt_folders
from torusrun.orchestrator.run.folder.log_errors.tracebacks import Tracebacks, bare
from torusrun.orchestrator.run.folder.records import RankEnd
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.orchestrator.show.logs.files import TAIL_LINES, Logs
from torusrun.orchestrator.show.logs.source import FollowedFile, LogLine, tail
from torusrun.training.counted import first_of

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
                    also.setdefault(first, []).append(_who(origin))
                    continue
                self._told[alike] = origin
                yield from (line._replace(origin=origin) for line in block)
            if path in self._cut and not known:
                yield LogLine(
                    None, "", f"(of the log of {_who(origin)}, the last {READ_BYTES >> 20} MiB were searched)"
                )
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
        yield LogLine(None, "", f"(the traceback of {_who(first)} is also that of {first_of(names)})")


def _who(origin: str) -> str:
    name = origin.removesuffix(" | ").rpartition("#")[2].strip()
    attempt, _, name = name.rpartition(" ") if "#" in origin else ("", "", name)
    who = f"rank {name}" if name.isdecimal() else f"the {name}"
    return f"{who} of attempt {attempt.strip()}" if attempt else who


def bad_ends(attempt: Attempt) -> list[RankEnd]:
    """The ends of the ranks that failed, by time. Records that cannot be read are left out."""
    ends = []
    for rank in attempt_folders.recorded(attempt)["end"]:
        with contextlib.suppress(SiteError):
            ends.append(RankEnd.read(attempt.rank_end(rank)))
    return sorted((end for end in ends if end.failed), key=lambda end: end.ended_s)
