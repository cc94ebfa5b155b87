"""The file of results: a line for each training. What a cell has, and what it needs next."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.large_batch.cell import Case, Cell, cells
from benchmarks.large_batch.study import CHOOSES, Study

GUESS = 10.0  # percent: the accuracy of a training that diverged, of ten classes
CONSTANT = 12.0  # percent: at most this is the accuracy of a constant answer; MNIST's most frequent class has 11.35
UNSTABLE = 80.0  # percent: below this, one seed may be far from the others
MOST = 8  # doublings or halvings of the rule's rate

Scores = dict[Case, float]


def read(file: Path) -> Scores:
    """The accuracies in percent; none if there is no such file. A last line without its end was being written."""
    whole = file.read_text().rpartition("\n")[0] if file.exists() else ""
    return dict(_scored(json.loads(line)) for line in whole.splitlines())


def add(file: Path, case: Case, accuracy: float, facts: Mapping[str, object]) -> None:
    """`accuracy` in percent; NaN is a training that diverged."""
    row = {**asdict(case), "accuracy": None if math.isnan(accuracy) else round(accuracy, 3), **facts}
    with file.open("a+b") as lines:
        lines.seek(0)
        lines.truncate(lines.read().rfind(b"\n") + 1)
        lines.write(json.dumps(row).encode() + b"\n")


def _scored(row: dict[str, Any]) -> tuple[Case, float]:
    accuracy = row["accuracy"]
    return Case(Cell(**row["cell"]), row["doubled"], row["seed"]), GUESS if accuracy is None else accuracy


def following(cell: Cell, scores: Scores, study: Study) -> Case | None:
    """The next training of a cell; None if it has all: its best rate, and the rule's if the side is no recipe.

    A cell without a technique starts at the best rate of its whole.
    """
    tried, whole = _tried(cell, scores), _tried(replace(cell, without=""), scores)
    doubled = climb(tried, best(whole) if whole else 0)
    if doubled is not None:
        return Case(cell, doubled, CHOOSES)
    rates = [best(tried), *([] if cell.is_recipe or cell.without else [0])]
    cases = (Case(cell, rate, seed) for rate in dict.fromkeys(rates) for seed in study.seeds)
    return next((case for case in cases if case not in scores), None)


def climb(tried: Mapping[int, float], start: int = 0) -> int | None:
    """The next power of two to try, by the accuracies so far; None once both neighbours of the best one are known.

    `start` is the first, then come its neighbours. If nothing was learned, lower rates follow. Of an unstable best one
    the next lower neighbour is tried, too.
    """
    if start not in tried:
        return start
    top = best(tried)
    if tried[top] <= CONSTANT:
        return lowest - 1 if (lowest := min(tried)) > -MOST else None
    near = (top + 1, top - 1, top - 2) if tried[top] < UNSTABLE else (top + 1, top - 1)
    return next((each for each in near if each not in tried and abs(each) <= MOST), None)


def best(tried: Mapping[int, float]) -> int:
    """Of equals the one next to the rule."""
    return max(tried, key=lambda each: (tried[each], -abs(each)))


@dataclass(frozen=True)
class Found:
    """What a cell has at one rate: the mean accuracy in percent over `seeds` trainings, and its standard error.

    A training that diverged counts with the accuracy of a guess.
    """

    doubled: int
    mean: float
    error: float
    seeds: int
    diverged: int


def found(cell: Cell, scores: Scores, study: Study, doubled: int | None = None) -> Found | None:
    """At the best rate, or at a given one; None until two seeds of the mean have trained with it."""
    tried = _tried(cell, scores)
    if not tried:
        return None
    rate = best(tried) if doubled is None else doubled
    mine = [scores[case] for case in (Case(cell, rate, seed) for seed in study.seeds) if case in scores]
    if len(mine) < 2:
        return None
    return Found(
        rate, statistics.fmean(mine), statistics.stdev(mine) / math.sqrt(len(mine)), len(mine), mine.count(GUESS)
    )


def _tried(cell: Cell, scores: Scores) -> dict[int, float]:
    return {case.doubled: score for case, score in scores.items() if case.cell == cell and case.seed == CHOOSES}


def missing(study: Study, scores: Scores) -> list[Cell]:
    return [cell for cell in cells(study) if following(cell, scores, study)]
