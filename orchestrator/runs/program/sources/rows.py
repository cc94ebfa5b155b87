"""A row made of what a program wrote: names and numbers within limits, whatever they were.

A row is {"step": int, "t": float, **numbers}, without "step" where the program has named none yet. `t` is in seconds
since the epoch; a number that is not finite is None, which JSON writes as null.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from training.reporting.events import LARGEST, TOTALS

Row = dict[str, Any]

MOST_NUMBERS = 100
LONGEST_NAME = 100
FOREIGN = re.compile(r"[^A-Za-z0-9_./-]")
OURS = {"step", "t", "attempt", "event", "self"}  # not to be taken for what torusrun writes itself
STEPS = ("step", "global_step")
EVALUATED = re.compile(r"(^|[/_.-])(val|valid|validation|eval|evaluation|test)([/_.-]|$)")
LOSS = re.compile(r"(^|[/_.-])loss$")


def row(step: int | None, t: float, values: Mapping[str, object]) -> Row:
    """A row of the first hundred numbers in `values`; what is no number is left out."""
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
    """The number, None where it is none, not finite or too large to be kept."""
    return value if type(value) in (int, float) and -LARGEST < value < LARGEST else None  # type: ignore


def whole(value: object) -> int | None:
    """The number as a count from 0; None where it is none."""
    number = finite(value)
    return int(number) if number is not None and number >= 0 and number == int(number) else None


class LossName:
    """Which of a program's numbers is called its loss: `loss` itself, else the best name that ends in it.

    Numbers of an evaluation never are. The choice stays until a better name appears.
    """

    def __init__(self) -> None:
        self._chosen: tuple[int, str] | None = None

    def add_to(self, found: Row) -> Row:
        """Put the loss into a row under the name `loss`, where it has one under another."""
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
