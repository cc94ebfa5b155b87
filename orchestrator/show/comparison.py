"""Compares two runs: the numbers of the steps that both recorded, and the weights of their last common checkpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.run.folder import ledger, metrics
from torusrun.orchestrator.run.folder.events import Started
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.training.checkpoint.manifest import IncompleteCheckpoint, candidates, verify
from torusrun.training.counted import counted

COMPARED = ("loss", "test_loss", "accuracy", "top5")

Numbers = Mapping[tuple[int, str], float | None]  # by step and name; None for one that is not finite


@dataclass(frozen=True)
class Difference:
    """Two values of a number at one step. `relative` is by the larger one; None if one of them is not finite."""

    step: int
    name: str
    values: tuple[float | None, float | None]
    relative: float | None


@dataclass(frozen=True)
class Comparison:
    """Two runs, compared with each other.

    `steps` and `numbers` count those that both recorded, `names` are their names. `first` and `largest` are the first
    and the largest difference; None without one. `checkpoint` is the newest one that both have, '' for none, and
    `same_weights` whether its checksums are equal. `grids` are those of their last attempts, () if unknown.
    """

    runs: tuple[str, str]
    steps: int
    numbers: int
    names: tuple[str, ...]
    first: Difference | None
    largest: Difference | None
    checkpoint: str
    same_weights: bool | None
    grids: tuple[tuple[int, ...], tuple[int, ...]]

    @property
    def identical(self) -> bool:
        """Whether all that can be compared is equal, and the weights are among it."""
        return not self.first and bool(self.same_weights)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "identical": self.identical}

    @property
    def words(self) -> str:
        if not self.numbers and not self.checkpoint:
            return "nothing can be compared: they have no step and no checkpoint in common"
        said = [self._numbers, self._weights, self._why]
        return f"{'bit-identical: ' if self.identical else ''}{', '.join(filter(None, said))}"

    @property
    def _numbers(self) -> str:
        if not self.numbers:
            return "no step in common"
        names = [", ".join(self.names[:-1]), self.names[-1]] if self.names[1:] else self.names
        named = f"{' and '.join(names)} at {counted(self.steps, 'common step')}"
        if not (self.first and self.largest):
            return f"equal {named}"
        by = "one is not finite" if self.largest.relative is None else f"by {self.largest.relative:.2g}"
        most = f"most at step {self.largest.step} ({self.largest.name}, {by})"
        return f"{named} differ from step {self.first.step} on, {most}"

    @property
    def _weights(self) -> str:
        if not self.checkpoint:
            return "no checkpoint in common"
        return f"{'equal' if self.same_weights else 'other'} weights in {self.checkpoint}, by SHA-256"

    @property
    def _why(self) -> str:
        mine, theirs = self.grids
        if self.identical or mine == theirs or not (mine and theirs):
            return ""
        return f"on other grids ({Grid(mine)} and {Grid(theirs)}), which sum in another order"


def compare(run: RunFolder, other: RunFolder) -> Comparison:
    """Compare two runs by their records. Raises SiteError if their metrics cannot be read."""
    mine, theirs = _numbers(run), _numbers(other)
    common = sorted(mine.keys() & theirs.keys())
    differing = [_difference(key, mine[key], theirs[key]) for key in common if mine[key] != theirs[key]]
    checkpoint, same = _checkpoint(run, other)
    return Comparison(
        (run.run_id, other.run_id),
        len({step for step, _ in common}),
        len(common),
        tuple(name for name in COMPARED if any(name == found for _, found in common)),
        next(iter(differing), None),
        max(differing, key=_size, default=None),
        checkpoint,
        same,
        (_grid(run), _grid(other)),
    )


def _numbers(run: RunFolder) -> Numbers:
    """The recorded numbers of a run. Of a step that a later attempt repeated, the newer ones count."""
    rows = [row for row in metrics.rows(run.metrics) if type(row.get("step")) is int]
    return {(row["step"], name): row[name] for row in rows for name in COMPARED if name in row}


def _difference(key: tuple[int, str], mine: float | None, theirs: float | None) -> Difference:
    relative = None
    if mine is not None and theirs is not None:
        relative = abs(mine - theirs) / max(abs(mine), abs(theirs))
    return Difference(*key, (mine, theirs), relative)


def _size(difference: Difference) -> float:
    return math.inf if difference.relative is None else difference.relative


def _checkpoint(run: RunFolder, other: RunFolder) -> tuple[str, bool | None]:
    """(the newest checkpoint that both have, whether its files have the same checksums), by their manifests."""
    for path in candidates(run.checkpoints):
        try:
            found = verify(path, contents=False), verify(other.checkpoints / path.name, contents=False)
        except IncompleteCheckpoint:
            continue
        return path.name, found[0].sha256 == found[1].sha256
    return "", None


def _grid(run: RunFolder) -> tuple[int, ...]:
    """The grid of its newest attempt that began; () if there is none."""
    begun = [event.grid for event in ledger.events(run.ledger) if isinstance(event, Started)]
    return tuple(begun[-1] or ()) if begun else ()
