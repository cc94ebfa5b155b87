"""Failures in the logs: blocks that begin with 'Traceback', and failed ends of ranks."""

from __future__ import annotations

import contextlib
import re
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.folder import attempt_folders
from torusrun.orchestrator.folder.records import RankEnd
from torusrun.orchestrator.folder.run_folder import Attempt
from torusrun.orchestrator.report.logs.files import TAIL_LINES, Logs
from torusrun.orchestrator.report.logs.source import FollowedFile, LogLine
from torusrun.orchestrator.report.logs.tail import tail
from torusrun.training.counted import first_of

MOST_BLOCKS = 20  # of one file: the newest ones
MOST_LINES = 500  # of one block
TRACEBACK = "Traceback (most recent call last):"
PREFIX = re.compile(r"^(\[[\w .:-]+\]:? ?)?")  # as PyTorch's '[rank0]: '
LINKS = ("During handling of the above exception", "The above exception was the direct cause")


class Failures:
    """The failures of one attempt, each reported once, in the order in which they are found.

    `since_s` (as of time.time()) leaves out earlier lines.
    """

    def __init__(self, logs: Logs, since_s: float | None = None) -> None:
        self.logs, self._since_s = logs, since_s
        self._files: dict[Path, tuple[FollowedFile, Tracebacks]] = {}
        self._told: dict[tuple[str, ...], str] = {}
        self._with_traceback: set[Path] = set()
        self._ended: set[int] = set()

    def new(self, *, final: bool) -> Iterator[LogLine]:
        """Every traceback of the job and of the ranks once, then the failed ranks, with their last lines.

        The rank that ended first comes first. A rank with a reported traceback has no last lines. Unless `final` is
        set, a traceback that may continue is left for the next call.
        """
        also: dict[str, list[str]] = {}  # first origin of a traceback -> other origins of the same
        for origin, path in self.logs.files():
            for block in self._new_blocks(path, final):
                self._with_traceback.add(path)
                if first := self._told.get(bare := tuple(PREFIX.sub("", line.text) for line in block)):
                    also.setdefault(first, []).append(_who(origin))
                    continue
                self._told[bare] = origin
                yield from (line._replace(origin=origin) for line in block)
        yield from _the_same(also)
        for end in bad_ends(self.logs.attempt):
            if end.rank not in self._ended and (self._since_s is None or end.ended_s >= self._since_s):
                self._ended.add(end.rank)
                yield from self._end(end)

    def _new_blocks(self, path: Path, final: bool) -> list[list[LogLine]]:
        file, blocks = self._files.setdefault(path, (FollowedFile("", path), Tracebacks()))
        for line in file.new(whole=not final):
            if self._since_s is None or line.time_s is None or line.time_s >= self._since_s:
                blocks.add(line)
        return blocks.taken(final=final)

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


class Tracebacks:
    """The newest blocks of lines, each from the start of a traceback to the line that names the exception.

    Exceptions that caused each other are in one block.
    """

    def __init__(self) -> None:
        self._blocks: deque[list[LogLine]] = deque(maxlen=MOST_BLOCKS)
        self._goes_on = self._linked = False  # whether the newest block continues; whether the next joins it

    def add(self, line: LogLine) -> None:
        bare = PREFIX.sub("", line.text, count=1)
        begins, links = TRACEBACK in bare, bare.startswith(LINKS) and bool(self._blocks)
        if begins and not self._goes_on and not self._linked:
            self._blocks.append([])
        if (begins or links or self._goes_on) and len(self._blocks[-1]) < MOST_LINES:
            self._blocks[-1].append(line)
        if begins or links:
            self._goes_on, self._linked = begins, links
        elif bare.strip() and not bare[0].isspace():  # the line that names the exception
            self._goes_on = self._linked = False

    def taken(self, *, final: bool) -> list[list[LogLine]]:
        """The blocks that were found since the last call; unless `final` is set, without one that may continue."""
        waits = [self._blocks.pop()] if self._blocks and not final and (self._goes_on or self._linked) else []
        found = list(self._blocks)
        self._blocks.clear()
        self._blocks.extend(waits)
        self._goes_on, self._linked = self._goes_on and bool(waits), self._linked and bool(waits)
        return found


def tracebacks(lines: Iterable[LogLine]) -> list[list[LogLine]]:
    blocks = Tracebacks()
    for line in lines:
        blocks.add(line)
    return blocks.taken(final=True)
