"""The error that a process left in its log, read from the end: the same for verdicts and for what users see.

Of a torchrun, its table of failures says which of its workers failed first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from pathlib import Path

from torusrun.orchestrator.base import whole_lines
from torusrun.orchestrator.base.signals import signal_name
from torusrun.orchestrator.run.folder.log_errors.kinds import (
    BAR,
    DEVICE_FULL,
    LOST_PEER,
    OF_A_SERVER,
    LineKind,
    kind_of,
    kind_of_exception,
)
from torusrun.orchestrator.run.folder.log_errors.tracebacks import TRACEBACK, Block, Tracebacks, bare, parts

READ_BYTES = (1 << 16, 1 << 20)  # of the end of a log; more if the end shows no error
LARGEST_QUOTE = 300
MOST_AFTER = 100  # lines of the program after its last error
MOST_STEPS = 4  # lines of progress after an error that ended the program
MESSAGE_LINES = 6  # that an exception may write below its first line
SHOWN_BEFORE, SHOWN_AFTER = 9, 5
TABLE_EDGE = re.compile(r"={20,}$")
ROOT = re.compile(r"Root Cause( \(first observed failure\))?:$")
RANK = re.compile(r"\s*rank\s*: (\d+) \(local_rank: (\d+)\)")
EXIT = re.compile(r"\s*exitcode\s*: (-?\d+) ")


@dataclass(frozen=True)
class Worker:
    """The worker of a torchrun that failed first: its rank, its local rank, and its exit code (negative: a signal).

    `error` is its exception, if it has recorded one for torchrun.
    """

    rank: int
    local_rank: int
    exit_code: int
    error: str = ""

    @property
    def signal(self) -> int | None:
        return -self.exit_code if self.exit_code < 0 else None

    @property
    def words(self) -> str:
        how = f"was killed by {signal_name(self.signal)}" if self.signal else f"ended with exit code {self.exit_code}"
        return f"torchrun's rank {self.rank} {how}"


def table(lines: Sequence[str]) -> tuple[Worker | None, range]:
    """(the worker that failed first by the last table in these lines, the lines of the table); (None, none of them)."""
    if not any("Root Cause" in line for line in lines):
        return None, range(0)
    texts = [bare(line)[1].rstrip() for line in lines]
    root = next((n for n in reversed(range(len(texts))) if ROOT.match(texts[n])), len(texts))
    begin = next((n for n in reversed(range(root)) if TABLE_EDGE.match(texts[n])), root)
    end = next((n for n in range(root, len(texts)) if TABLE_EDGE.match(texts[n])), len(texts))
    rows = texts[root:end]
    rank, code = (next(filter(None, map(pattern.match, rows)), None) for pattern in (RANK, EXIT))
    if not (rank and code):
        return None, range(0)
    traced = [row.strip() for n, row in enumerate(rows) if any(TRACEBACK in before for before in rows[:n])]
    error = next((row for row in reversed(traced) if row), "")
    return Worker(int(rank[1]), int(rank[2]), int(code[1]), error), range(begin, end + 1)


@dataclass(frozen=True)
class LoggedError:
    """The error of a process by its log.

    `reason` is its one line (the last line of the log if it shows no error, '' for an empty log), `lines` are to be
    shown, `text` is its whole text, and `worker` the process of a torchrun that failed first.
    """

    kind: LineKind = LineKind.PLAIN
    reason: str = ""
    lines: tuple[str, ...] = ()
    text: str = ""
    worker: Worker | None = None

    @property
    def known(self) -> bool:
        """Whether the log shows an error."""
        return self.kind < LineKind.PLAIN or self.worker is not None

    @property
    def lost_peer(self) -> bool:
        """Whether the process lost its connection to another rank."""
        return bool(LOST_PEER.search(self.text)) and not OF_A_SERVER.search(self.text)

    @property
    def device_full(self) -> bool:
        return bool(DEVICE_FULL.search(self.text))


@dataclass(frozen=True)
class _Candidate:
    """An error that ends at the line `last`; `stream` has the prefixes of its process."""

    kind: LineKind
    last: int
    reason: str
    stream: str
    rows: Sequence[int]
    exceptions: Sequence[str]


class _Reading:
    """The lines of a log's end, sorted into errors and others."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = list(parts(lines))
        self._bare: dict[int, tuple[str, str]] = {}
        self.worker, covered = table(self.lines)
        reader: Tracebacks[int] = Tracebacks()
        self.inside = [n in covered or reader.add(line, n) for n, line in enumerate(self.lines)]
        self.blocks = reader.taken(final=True)
        self.kinds = self._sorted()

    def bare(self, n: int) -> tuple[str, str]:
        """(the prefixes of a line that name its process, its text)."""
        if n not in self._bare:
            who, text = bare(self.lines[n])
            self._bare[n] = who, text.strip(" \t|")
        return self._bare[n]

    def text(self, n: int) -> str:
        return self.bare(n)[1]

    def _sorted(self) -> dict[int, LineKind]:
        """The kinds of the lines outside tracebacks, from the last line back to where the program went on."""
        kinds: dict[int, LineKind] = {}
        left = {LineKind.PLAIN: MOST_AFTER, LineKind.PROGRESS: MOST_STEPS}
        for n in reversed(range(len(self.lines))):
            kinds[n] = LineKind.CLOSING if self.inside[n] else kind_of(self.text(n))
            if kinds[n] in left and not (self._is_bar(n) and self._is_bar(n + 1)):  # a bar is drawn again and again
                left[kinds[n]] -= 1
                if left[kinds[n]] < 0:
                    break
        return kinds

    def _is_bar(self, n: int) -> bool:
        return n < len(self.lines) and bool(BAR.search(self.lines[n]))

    def candidates(self) -> list[_Candidate]:
        """The errors in the order of the log, without those after which the program went on."""
        single = [
            _Candidate(kind, n, whole := self._whole(n), self.bare(n)[0], (n,), (whole,))
            for n, kind in self.kinds.items()
            if kind < LineKind.PLAIN
        ]
        blocks = filter(None, map(self._traceback, self.blocks))
        traced = [error for error in blocks if self.worker or error.last in self.kinds]
        return sorted([*traced, *single], key=lambda error: error.last)

    def _traceback(self, block: Block[int]) -> _Candidate | None:
        reason = block.reason
        kind, last = kind_of_exception(reason, block.before), block.rows[-1]
        if reason.endswith(":"):
            reason = self._joined(reason, last)
        return _Candidate(kind, last, reason, block.stream, block.rows, block.exceptions) if reason else None

    def _whole(self, n: int) -> str:
        """The line `n`, with the message of its exception if C++ wrote them on two lines, or the next line."""
        text = self.text(n)
        if text.startswith("what():") and n and "instance of" in self.text(n - 1):
            return f"{self.text(n - 1).rpartition(' ')[2].strip(chr(39))}: {text.removeprefix('what():').strip()}"
        return self._joined(text, n) if text.endswith(":") else text

    def _joined(self, reason: str, n: int) -> str:
        after = [text for k in self._message(n, self.bare(n)[0]) if any(map(str.isalnum, text := self.text(k)))]
        return f"{reason} {after[0]}" if after else reason

    def _message(self, n: int, stream: str) -> list[int]:
        """The lines after `n` that may be the rest of an exception's message."""
        near = range(n + 1, min(n + 1 + 8 * MESSAGE_LINES, len(self.lines)))
        own = (k for k in near if self.bare(k)[0] == stream)
        return list(islice(takewhile(lambda k: not self.inside[k], own), MESSAGE_LINES))

    def chosen(self) -> _Candidate | None:
        """The error that explains most: of the worker that failed first, else the last of the lowest kind."""
        errors = self.candidates()
        if self.worker:
            errors = [error for error in errors if error.kind is not LineKind.CHILD]
            names = (f"[rank{self.worker.rank}]", f"[default{self.worker.local_rank}]")
            own = [error for error in errors if any(name in error.stream for name in names)]
            causes = [error for error in errors if not LOST_PEER.search(self.all_of(error))]
            errors = own or ([] if self.worker.signal else causes or errors)
        return min(reversed(errors), key=lambda error: error.kind, default=None)

    def all_of(self, error: _Candidate) -> str:
        """The exceptions of an error, without the lines of code that raised them, and the last exception's message."""
        return "\n".join([*error.exceptions, *map(self.text, self._message(error.last, error.stream))])

    def shown(self, error: _Candidate) -> list[str]:
        """The lines of a traceback and of the message below it, or those around an error line."""
        if len(error.rows) == 1:
            return self.lines[max(error.last - SHOWN_BEFORE, 0) : error.last + 1 + SHOWN_AFTER]
        message = takewhile(lambda n: self.kinds.get(n) is LineKind.PLAIN, self._message(error.last, error.stream))
        return [self.lines[n] for n in (*error.rows, *message)]

    def last(self) -> str:
        """The last line that the program itself wrote, else the last of all."""
        own = (self.text(n) for n, kind in self.kinds.items() if kind in (LineKind.PLAIN, LineKind.PROGRESS))
        return next(own, next(filter(None, map(self.text, reversed(range(len(self.lines))))), ""))


def last_error(lines: Sequence[str]) -> LoggedError:
    """The error in the last lines of a log."""
    reading = _Reading(lines)
    chosen, worker = reading.chosen(), reading.worker
    if chosen:
        logged = LoggedError(chosen.kind, chosen.reason, tuple(reading.shown(chosen)), reading.all_of(chosen))
    else:
        reason = "" if worker else reading.last()
        logged = LoggedError(LineKind.PLAIN, reason, tuple(reading.lines[-SHOWN_BEFORE - 1 :]), reason)
    if worker:
        error = (worker.error or logged.reason)[:LARGEST_QUOTE]
        words = f"{worker.words}: {error}" if error else worker.words
        return replace(logged, reason=words, text=f"{worker.error}\n{logged.text}", worker=worker)
    return replace(logged, reason=logged.reason[:LARGEST_QUOTE])


def read_last(path: Path, *sizes_bytes: int) -> LoggedError:
    """The error at the end of a log; an empty error if the log cannot be read.

    `sizes_bytes` are how much of its end is read, each if the size before shows no error; default: READ_BYTES.
    """
    error = LoggedError()
    for largest_bytes in sizes_bytes or READ_BYTES:
        lines = whole_lines.tail(path, largest_bytes)
        error = last_error([line.decode(errors="replace") for line in lines])
        if error.known or sum(map(len, lines)) + len(lines) < largest_bytes // 2:
            break
    return error
