"""The study of a sweep as its folder has it. Its jobs choose the values of the members."""

from __future__ import annotations

from dataclasses import dataclass

MOST_CHECKED = 16  # values of a range


@dataclass(frozen=True)
class Searched:
    """A key with its `choices`, or its range from `low` to `high`.

    A range is searched by ratios (`log`), in steps, or anywhere; `whole` says that its values are whole numbers.
    """

    key: str
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    step: float | None = None
    whole: bool = False

    @property
    def checked(self) -> tuple[str, ...]:
        """The values that are checked before a submission: all of them if they are few, else both ends of the range."""
        step = self.step or float(self.whole)
        steps = round((self.high - self.low) / step) if step else MOST_CHECKED
        values = [self.low + step * number for number in range(steps + 1)] if steps < MOST_CHECKED else []
        return self.choices or tuple(self.text(value) for value in values or (self.low, self.high))

    def text(self, value: str | float) -> str:
        """A value as a file has it, without loss."""
        return str(value) if isinstance(value, str) else str(round(value)) if self.whole else repr(float(value))

    def __str__(self) -> str:
        how = ", by ratios" if self.log else f", in steps of {self.step:g}" if self.step else ""
        return ", ".join(self.choices) or f"{self.low:g} to {self.high:g}{how}"


@dataclass(frozen=True)
class Study:
    """What is searched, and the metric whose `larger` or smaller value is better."""

    metric: str
    larger: bool
    seed: int
    searched: tuple[Searched, ...]
