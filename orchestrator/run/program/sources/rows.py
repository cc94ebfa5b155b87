"""Makes rows from a program's output, with names and numbers within limits.

A row is {"step": int, "t": float, **numbers}, without "step" before the program's first step. `t` is in seconds since
the epoch. A number that is not finite is None, which JSON writes as null.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torusrun.training.reporting.events import LARGEST, TOTALS

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
    """The value as an integer >= 0; None if it is not one."""
    number = finite(value)
    return int(number) if number is not None and number >= 0 and number == int(number) else None


class LossName:
    """Chooses the number that is a program's loss: `loss` itself, else the best name that ends in it.

    It never chooses numbers of an evaluation. The choice stays until a better name appears.
    """

    def __init__(self) -> None:
        self._chosen: tuple[int, str] | None = None

    def add_to(self, found: Row) -> Row:
        """Add the chosen number to a row under the name `loss`, if the row has it under another name."""
        ranked = [(rank, name) for name in found if (rank := _rank(name)) is not None]
        self._chosen = min(
            [*([self._chosen] if self._chosen else []), *ranked], key=lambda choice: choice[0], default=None
        )
        if self._chosen and self._chosen[1] in found:
            found.setdefault("loss", found[self._chosen[1]])
        return found


def _rank(name: str) -> int | None:
    if name == "loss":
        return 0
    if not LOSS.search(name) or EVALUATED.search(name.lower()):
        return None
    return 1 if "train" in name.lower() else 2 if name.endswith("/loss") else 3
