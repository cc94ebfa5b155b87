"""A recipe while it is fitted to a run: its keys as rules change them, and the user's keys."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from torusrun.training.recipe.facts import DataFacts, data_facts
from torusrun.training.recipe.files import Change, Published
from torusrun.training.recipe.train import Train

RULED = {"model.name", "data.size", "epochs", "batch", "phases", "optimizer.name", "optimizer.lr", "precision"}


@dataclass
class Fitting:
    """The recipe's keys while rule after rule changes them."""

    recipe: Published
    user: Train
    given: frozenset[str]
    ranks: int
    gpus: bool
    changes: list[Change] = field(default_factory=list)
    held: dict[str, Any] = field(init=False)
    data: DataFacts | None = field(init=False)

    def __post_init__(self) -> None:
        self.held = deepcopy(dict(self.recipe.written))
        own = self.user if "data.size" in self.given else replace(self.user, data=replace(self.user.data, size=None))
        self.data = data_facts(own)

    @property
    def phases(self) -> list[dict[str, Any]]:
        """The recipe's phases; none if the user wrote some."""
        return [] if "phases" in self.given else self.held["phases"]

    def has(self, key: str) -> bool:
        return key in self.given

    def overruled(self, key: str, value: Any) -> None:
        """Record a value of the user that differs from the recipe's, unless a rule has recorded it."""
        published: Any = self.recipe.written
        for part in key.split("."):
            published = published.get(part) if isinstance(published, Mapping) else None
        if published is not None and key not in RULED:
            self.change(key, word(published), word(value), "given")

    def change(self, key: str, published: object, now: object, reason: str) -> None:
        """Record a change, unless the values are equal."""
        if published != now:
            self.changes.append(Change(key, str(published), str(now), reason))

    def highest(self) -> float:
        """The current highest learning rate."""
        rates = [phase["lr"] for phase in self.phases if "lr" in phase]
        every = [rate for each in rates for rate in (each if isinstance(each, list) else [each])]
        return float(max(every, default=self.held["optimizer"]["lr"]))

    def span(self, key: str, first: int) -> str:
        """'8,192 to 24,576', or one number if it does not change."""
        values = [first, *(phase[key] for phase in self.phases if key in phase)]
        low, high = min(values), max(values)
        return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def word(value: Any) -> str:
    """A value in the form of a run file."""
    return str(value).lower() if isinstance(value, bool) else str(value)
