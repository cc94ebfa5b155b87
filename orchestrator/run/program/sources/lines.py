"""Progress in lines: flat JSON objects, as `{"step": 120, "loss": 0.53}`, or a pattern with named groups in a log."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from torusrun.orchestrator.base.json_files import parsed
from torusrun.orchestrator.base.terminal.plain import uncoloured
from torusrun.orchestrator.keys.problems import shown
from torusrun.orchestrator.run.program.sources.growing import Growing, Lines
from torusrun.orchestrator.run.program.sources.rows import STEPS, LossName, Row, finite, row, whole
from torusrun.training.counted import counted

UNMATCHED_S = 60.0  # of output, after which a pattern should have matched

# Numbers as programs write them for people: 2,400 and 2_400, 1.2k. A comma before other than three digits may be a
# decimal one, as may a point before a comma: such a text has no number.
GROUPED = re.compile(r"[-+]?[1-9]\d{0,2}(?:([,_'])\d{3})(?:\1\d{3})*(?:\.\d+)?", re.ASCII)
UNSURE = re.compile(r"[.,_']\d")
FACTORS = {"k": 10**3, "K": 10**3, "M": 10**6}
NUMBER = re.compile(r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?:nan|inf)(?:inity)?)", re.IGNORECASE | re.ASCII)


class LineSource:
    """The file at `path`, which need not exist yet. Lines are not counted as steps.

    A row without `step` (or `global_step`) belongs to the previous step; a row without `t` gets the time of reading.
    """

    longest_bytes: int

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._file = Growing(path, partial(Lines, self.longest_bytes))
        self._clock = clock
        self._loss = LossName()
        self._step: int | None = None

    def numbers(self, line: bytes) -> Mapping[str, object]:
        """The values in a line; {} for a line without a number."""
        raise NotImplementedError

    def new_rows(self, final: bool = False) -> list[Row]:
        """The rows written since the last call."""
        return [made for line in self._lines(final) if (found := self.numbers(line)) and (made := self._row(found))]

    def _lines(self, final: bool) -> Iterator[bytes]:
        """The new lines, one by one: the time limit of the reader holds for each (job/relay.py)."""
        yield from self._file.new()
        if final:  # the last line may have no line break
            yield from self._file.cut(b"\n")

    def _row(self, content: Mapping[str, object]) -> Row | None:
        if named := next((key for key in STEPS if key in content), None):
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
        has_number = type(content) is dict and any(type(value) in (int, float) for value in content.values())
        return content if has_number else {}


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
        found = {name: value for name, group in groups if (value := _number(group)) is not None}
        if not found:
            self._first_s = self._first_s or self._clock()
            self._unmatched, self._newest = self._unmatched + 1, text
        self._matched = self._matched or bool(found)
        return found

    @property
    def complaint(self) -> str:
        if self._matched or not self._unmatched or self._clock() - self._first_s < UNMATCHED_S:
            return ""
        lines = f"none of the {counted(self._unmatched, 'line')} of rank 0"
        return f"metrics.pattern matches {lines}, of which the newest is {shown(uncoloured(self._newest))}"


def _number(text: str | None) -> int | float | None:
    """The number at the beginning of a text: 0.53 of `0.53,`, 10 of `10/100`, 2400 of `2,400` and 1200 of `1.2k`.

    None if there is none, or if it can be read as two numbers.
    """
    text = (text or "").strip()
    found = GROUPED.match(text)
    if found is None or text[found.end() :][:1].isdigit():
        found = NUMBER.match(text)
    if not found or UNSURE.match(text, found.end()):
        return None
    digits = re.sub("[,_']", "", found[0])
    number = int(digits) if digits.lstrip("+-").isdigit() and len(digits) < 20 else float(digits)
    suffix = re.match(r"[kKM](?![A-Za-z0-9])", text[found.end() :])
    return round(number * FACTORS[suffix[0]], 6) if suffix else number
