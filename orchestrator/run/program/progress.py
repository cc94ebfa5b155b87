"""The progress that any program reports: flat JSON objects in lines, or a pattern with named groups in a log.

A source remembers how far it has read, and skips bad content. With `new_rows(final=True)` nothing more is written: an
open last line is complete. A row is {"step": int, "t": float, **numbers}, without "step" before the program's first
step. `t` is in seconds since the epoch. A number that is not finite is None, which JSON writes as null.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base.json_files import parsed
from torusrun.orchestrator.base.private import open_regular
from torusrun.orchestrator.base.terminal.plain import uncoloured
from torusrun.orchestrator.keys.problems import shown
from torusrun.training.counted import counted
from torusrun.training.reporting.events import LARGEST, TOTALS

BLOCK_BYTES = 1 << 20
BREAK = re.compile(rb"[\r\n]")  # a progress bar ends its lines with a carriage return alone


class Lines:
    """The lines of a file that grows, without empty ones, truncated to `longest_bytes`.

    After the file was truncated or replaced, it begins anew.
    """

    def __init__(self, path: Path, longest_bytes: int) -> None:
        self._path, self._longest_bytes = path, longest_bytes
        self._begun = b""
        self._position = self._inode = 0

    def new(self) -> Iterator[bytes]:
        """The lines that ended since the last call; none if the file cannot be read."""
        try:
            with open(open_regular(self._path), "rb", buffering=0) as file:
                self._notice_new_file(os.fstat(file.fileno()))
                while block := os.pread(file.fileno(), BLOCK_BYTES, self._position):
                    self._position += len(block)
                    yield from self.ended_by(block)
        except OSError:
            return

    def _notice_new_file(self, status: os.stat_result) -> None:
        if self._inode and (status.st_ino != self._inode or status.st_size < self._position):
            self._position, self._begun = 0, b""
        self._inode = status.st_ino

    def ended_by(self, block: bytes) -> list[bytes]:
        """The lines that end in a block; the line that begins in it is kept."""
        first, *others = BREAK.split(block)
        *whole, begun = [self._begun + first, *others]
        self._begun = begun[: self._longest_bytes]
        return [line[: self._longest_bytes] for line in whole if line]


Row = dict[str, Any]

MOST_NUMBERS = 100
LONGEST_NAME = 100
FOREIGN = re.compile(r"[^A-Za-z0-9_./-]")
OURS = {"step", "t", "attempt", "event", "self"}  # keys that torusrun itself writes
STEPS = ("step", "global_step")
EVALUATED = re.compile(r"(^|[/_.-])(val|valid|validation|eval|evaluation|test)([/_.-]|$)")
LOSS = re.compile(r"(^|[/_.-])loss$")


def row(step: int | None, t: float, values: Mapping[str, object]) -> Row:
    """A row of the first MOST_NUMBERS numbers in `values`, without other values."""
    made: Row = {"t": t} if step is None else {"step": step, "t": t}
    for key, value in values.items():
        name = FOREIGN.sub("_", key)[:LONGEST_NAME]
        if not name or name in OURS or name in made or type(value) not in (int, float):
            continue
        if name in TOTALS:
            if (total := whole(value)) is not None:
                made[name] = total
        elif len(made) < MOST_NUMBERS + 2:
            made[name] = finite(value)
    return made


def finite(value: object) -> float | int | None:
    """The number; None if it is not a number, not finite or too large."""
    return value if type(value) in (int, float) and -LARGEST < value < LARGEST else None  # type: ignore


def whole(value: object) -> int | None:
    """The value as an integer >= 0; None for any other value."""
    number = finite(value)
    return int(number) if number is not None and number >= 0 and number == int(number) else None


class LossName:
    """Chooses the number that is a program's loss: `loss` itself, else the best name that ends in it.

    It never chooses numbers of an evaluation. The choice stays until a better name appears.
    """

    def __init__(self) -> None:
        self._chosen: tuple[int, str] | None = None

    def add_to(self, numbers: Row) -> Row:
        """Add the chosen number to a row under the name `loss`, if the row has it under another name."""
        ranked = [(rank, name) for name in numbers if (rank := _rank(name)) is not None]
        self._chosen = min(
            [*([self._chosen] if self._chosen else []), *ranked], key=lambda choice: choice[0], default=None
        )
        if self._chosen and self._chosen[1] in numbers:
            numbers.setdefault("loss", numbers[self._chosen[1]])
        return numbers


def _rank(name: str) -> int | None:
    if name == "loss":
        return 0
    if not LOSS.search(name) or EVALUATED.search(name.lower()):
        return None
    return 1 if "train" in name.lower() else 2 if name.endswith("/loss") else 3


UNMATCHED_S = 60.0  # of output, after which a pattern should have matched

# Numbers as programs write them for people: 2,400 and 2_400, 1.2k. A comma before other than three digits may be a
# decimal one, as may a point before a comma: such a text has no number.
GROUPED = re.compile(r"[-+]?[1-9]\d{0,2}(?:([,_'])\d{3})(?:\1\d{3})*(?:\.\d+)?", re.ASCII)
UNSURE = re.compile(r"[.,_']\d")
FACTORS = {"k": 10**3, "K": 10**3, "M": 10**6}
NUMBER = re.compile(r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?:nan|inf)(?:inity)?)", re.IGNORECASE | re.ASCII)


class LineSource:
    """The file at `path`, which need not exist yet. Lines are not counted as steps.

    A row without `step` (or `global_step`) belongs to the previous step, to none after a null; a row without `t` gets
    the time of reading.
    """

    longest_bytes: int

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._file = Lines(path, self.longest_bytes)
        self._clock = clock
        self._loss = LossName()
        self._step: int | None = None

    def numbers(self, line: bytes) -> Mapping[str, object]:
        """The values in a line; {} for a line without a number."""
        raise NotImplementedError

    def new_rows(self, final: bool = False) -> list[Row]:
        """The rows written since the last call."""
        return [made for line in self._lines(final) if (values := self.numbers(line)) and (made := self._row(values))]

    def _lines(self, final: bool) -> Iterator[bytes]:
        """The new lines, one by one: the time limit of the reader holds for each (job/relay.py)."""
        yield from self._file.new()
        if final:  # the last line may have no line break
            yield from self._file.ended_by(b"\n")

    def _row(self, content: Mapping[str, object]) -> Row | None:
        if named := next((key for key in STEPS if key in content), None):
            if content[named] is None:
                self._step = None
            if (step := whole(content[named])) is None:
                return None
            self._step = step
        t = finite(content.get("t"))
        return self._loss.add_to(row(self._step, self._clock() if t is None else float(t), content))


class JsonLines(LineSource):
    """One flat JSON object per line."""

    longest_bytes = 64 * 1024

    def numbers(self, line: bytes) -> Mapping[str, object]:
        try:
            content = parsed(line)
        except ValueError:
            return {}
        if type(content) is not dict:
            return {}
        known = any(type(value) in (int, float) or (value is None and name in STEPS) for name, value in content.items())
        return content if known else {}


class PatternSource(LineSource):
    """A log with numbers in the named groups of a pattern, as `step (?P<step>\\d+).*loss=(?P<loss>\\S+)`.

    `complaint` says after UNMATCHED_S of output that no line of it has matched; '' otherwise.
    """

    longest_bytes = 4096  # the time of a pattern can grow quadratically with the line, or worse

    def __init__(self, path: Path, pattern: re.Pattern[str], clock: Callable[[], float] = time.time) -> None:
        super().__init__(path, clock)
        self._pattern = pattern
        self._matched = False
        self._unmatched, self._newest, self._first_s = 0, "", 0.0

    def numbers(self, line: bytes) -> Mapping[str, object]:
        text = line.decode("utf-8", "replace")
        match = self._pattern.search(uncoloured(text))
        groups = match.groupdict().items() if match else ()
        values = {name: value for name, group in groups if (value := _number(group)) is not None}
        if not values:
            self._first_s = self._first_s or self._clock()
            self._unmatched, self._newest = self._unmatched + 1, text
        self._matched = self._matched or bool(values)
        return values

    @property
    def complaint(self) -> str:
        if self._matched or not self._unmatched or self._clock() - self._first_s < UNMATCHED_S:
            return ""
        lines = f"none of the {counted(self._unmatched, 'line')} of rank 0"
        return f"metrics.pattern matches {lines}, of which the newest is {shown(uncoloured(self._newest))}"


def checkpoint_line(path: str, step: int | None) -> str:
    """The line in the log of a role that judges each checkpoint, before its output about this checkpoint."""
    return f"torusrun: checkpoint {path}, step {'unknown' if step is None else step}\n"


def pattern_of(pattern: str | None, *, by_checkpoint: bool) -> str:
    """The pattern; with `by_checkpoint` it also matches `checkpoint_line`, unless it has steps of its own."""
    if not pattern or not by_checkpoint or {*STEPS} & re.compile(pattern).groupindex.keys():
        return pattern or ""
    return rf"{pattern}|^torusrun: checkpoint .*, step (?P<step>\d+)$"


def _number(text: str | None) -> int | float | None:
    """The number at the beginning of a text: 0.53 of `0.53,`, 10 of `10/100`, 2400 of `2,400` and 1200 of `1.2k`.

    None for a text without a number, or whose digits can be read as two numbers.
    """
    text = (text or "").strip()
    match = GROUPED.match(text)
    if match is None or text[match.end() :][:1].isdigit():
        match = NUMBER.match(text)
    if not match or UNSURE.match(text, match.end()):
        return None
    digits = re.sub("[,_']", "", match[0])
    number = int(digits) if digits.lstrip("+-").isdigit() and len(digits) < 20 else float(digits)
    suffix = re.match(r"[kKM](?![A-Za-z0-9])", text[match.end() :])
    return round(number * FACTORS[suffix[0]], 6) if suffix else number
