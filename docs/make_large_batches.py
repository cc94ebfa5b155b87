"""Write docs/reference/large-batches.md and its pictures from the results of benchmarks/large_batch.

`python docs/make_large_batches.py`; a test holds it current.
"""

# ruff: noqa: E501  (text of a page)

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.large_batch.cell import SIDES, Cell, cells
from benchmarks.large_batch.results import UNSTABLE, Found, Scores, missing, read
from benchmarks.large_batch.results import found as found_in
from benchmarks.large_batch.study import CHOOSES, MNIST
from torusrun.orchestrator.show.page.drawing import Chart, ChartLine
from torusrun.training.recipe.published import names
from torusrun.training.recipe.train import Train

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "benchmarks" / "results" / "large-batch.jsonl"
BATCHES, LARGE, SEEDS = MNIST.batches, MNIST.large or 0, MNIST.seeds
FEWEST = 3  # seeds of a difference
GOAL = 0.5  # points that LARS may lose at the large batch
SMALL = Cell("sgd", BATCHES[0])
NAMES = {"sgd": "SGD", "lars": "LARS"}
STYLE = (
    "<style>text{font:10px sans-serif;fill:#444}.y{text-anchor:end}.x{text-anchor:middle}line{stroke:#ddd}"
    "polyline{fill:none;stroke-width:1.8}polygon{opacity:.15;stroke:none}"
    + "".join(
        f".c{number}{{stroke:{colour};fill:{colour}}}polyline.c{number}{{fill:none}}text.c{number}{{stroke:none}}"
        for number, colour in enumerate(("#c0392b", "#2471a3", "#229954", "#af601a"))
    )
    + "</style>"
)

PAGE = f"""# Large batches on real images

<!-- Made by docs/make_large_batches.py from benchmarks/results/large-batch.jsonl: do not edit. -->

What techniques of the recipes are worth at large batches, measured on two cores: MNIST's
60,000 images, reduced to {MNIST.size} x {MNIST.size} pixels, `resnet-small` with {" ".join(map(str, MNIST.widths))} channels, {MNIST.epochs} epochs. At {LARGE:,}
images a step that is {math.ceil(60000 * MNIST.epochs / LARGE)} steps. Percent of the 10,000 test images.

<!-- not executed: takes hours -->

    torusrun data get mnist
    python -m benchmarks.large_batch benchmarks/results/large-batch.jsonl
    python docs/make_large_batches.py

Every row has its own best rate, and no other key was tuned. Seed {CHOOSES} climbs from the rule's rate until neither twice nor half the
best is better, nor, below {UNSTABLE:g} %, a quarter. Seeds {SEEDS[0]} to {SEEDS[-1]} train with that rate; mean and standard error are of these alone. The
rules: 0.1 for 256 images and in proportion to the batch for SGD (Goyal et al. 2017), 10 for 3,328 and with its square root for LARS
(NVIDIA's MLPerf submissions), [its own fit](recipes.md#how-a-recipe-is-fitted-to-a-run) for a recipe. "x 4" is a rate as a multiple
of its rule's; it says nothing about the recipe at its own size. Nothing is held out: best rates flatter every row a little.
The first {MNIST.warm_up:g} epochs of SGD and LARS are a warm-up. A training that diverged counts as 10 %, a guess. One process computes the
whole batch: COMPLETE.

## Accuracy over the batch

![accuracy over the batch](large-batches.svg)

BATCHES

VERDICT

## How much the rate matters

![accuracy over the rate](large-batches-rates.svg)

Of seed {CHOOSES}, at {LARGE:,} images a step: the accuracy with the rule's rate times a power of two.

RATES

## The recipes, whole and without one technique

Without batch-size control the largest batch is taken from the start, and so fewer steps: STEPS. fastai-18min, fitted, has images
of 8, then {MNIST.size}, then 18 pixels: its first phases see almost nothing.

At {LARGE:,} images a step, each with its own best rate; points against the whole recipe. Bold: more than twice its standard error.
Empty: the recipe has no such technique. `...`: not measured yet.FEW

RECIPES

What several ranks do (batch norm over ranks, gradients in 16 bits) is not part of it. surfsara-28min had momentum correction here.
"""


def found(cell: Cell, scores: Scores, doubled: int | None = None) -> Found | None:
    return found_in(cell, scores, MNIST, doubled)


def text() -> str:
    """The page."""
    scores = read(RESULTS)
    wanted = list(cells(MNIST))
    left = len(missing(MNIST, scores))
    done = (
        f"all {len(wanted)} rows are complete"
        if not left
        else f"{len(wanted) - left} of {len(wanted)} rows are complete"
    )
    page = PAGE.replace("COMPLETE", done).replace("BATCHES", "\n".join(_batches(scores)))
    few = sum(1 for cell in wanted if (each := found(cell, scores)) and each.seeds < len(SEEDS))
    page = page.replace("FEW", f" {few} rows have {FEWEST} or {len(SEEDS) - 1} seeds so far." if few else "")
    page = page.replace("VERDICT", _verdict(scores)).replace("RATES", "\n".join(_rates(scores)))
    return page.replace("STEPS", "; ".join(_steps())).replace("RECIPES", "\n".join(_recipes(scores)))


def _steps() -> Iterator[str]:
    """How many steps each recipe with batch-size control takes, and without it."""
    for cell in cells(MNIST):
        if cell.without == "batch-size control":
            fewer, whole = (steps(each.train(MNIST)) for each in (cell, replace(cell, without="")))
            yield f"{cell.side} {fewer} in place of {whole}"


def steps(train: Train) -> int:
    """Those of MNIST's 60,000 images, phase after phase."""
    samples, batch, start, count = 60000, train.batch, 0.0, 0.0
    for phase in train.phases:
        batch = phase.batch or batch
        count, start = count + (phase.until - start) * samples / batch, phase.until
    return round(count)


def _batches(scores: Scores) -> Iterator[str]:
    yield "| images a step | SGD, the rule's rate | SGD, its best rate | LARS, the rule's rate | LARS, its best rate |"
    yield "|---|---|---|---|---|"
    for batch in BATCHES:
        row = [_shown(found(Cell(side, batch), scores, rate)) for side in SIDES for rate in (0, None)]
        yield f"| {batch:,} | {' | '.join(row)} |"


def _shown(each: Found | None) -> str:
    if each is None:
        return "..."
    few = f", {each.seeds} seeds" if each.seeds < len(SEEDS) else ""
    few += f", {each.diverged} diverged" if each.diverged else ""
    return f"{each.mean:.2f} +- {each.error:.2f} ({_times(each.doubled)}{few})"


def _times(doubled: int) -> str:
    return f"x {2**doubled}" if doubled >= 0 else f"x 1/{2**-doubled}"


def _verdict(scores: Scores) -> str:
    """The goal beside what was measured."""
    small, sgd, rule, lars = (
        found(SMALL, scores), found(Cell("sgd", LARGE), scores), found(Cell("sgd", LARGE), scores, 0),
        found(Cell("lars", LARGE), scores),
    )  # fmt: skip
    if not (small and sgd and rule and lars):
        return f"The goal, LARS at most {GOAL} points below SGD with {SMALL.batch} images a step, is not decided yet."
    lost = small.mean - lars.mean
    recipes = {
        name: each for name in names() if (each := found(Cell(name, LARGE), scores)) and each.seeds == len(SEEDS)
    }
    reach = [
        f"{name} ({small.mean - each.mean:.2f})" for name, each in recipes.items() if small.mean - each.mean <= GOAL
    ]
    those = f" Of the {len(recipes)} recipes that are measured, these lose at most that: {', '.join(reach) or 'none'}."
    return (
        f"The goal is that LARS at {LARGE:,} loses at most {GOAL} points against SGD with {SMALL.batch} images a step. It loses {lost:.2f}: the goal is "
        f"{'met' if lost <= GOAL else 'missed'}. SGD loses {small.mean - rule.mean:.2f} with the linear rule's rate, and {small.mean - sgd.mean:.2f} with its best one."
        + those
    )


def _rates(scores: Scores) -> Iterator[str]:
    tried = {side: _curve(scores, Cell(side, LARGE)) for side in SIDES}
    every = sorted({doubled for points in tried.values() for doubled, _ in points})
    yield f"| | {' | '.join(_times(int(doubled)) for doubled in every)} |"
    yield f"|---|{'---|' * len(every)}"
    for side, points in tried.items():
        at = dict(points)
        yield f"| {NAMES[side]} | {' | '.join(f'{at[each]:.2f}' if each in at else '' for each in every)} |"


def _curve(scores: Scores, cell: Cell) -> list[tuple[float, float]]:
    """The accuracy of the seed that chooses, by doublings of the rule's rate."""
    return sorted((case.doubled, score) for case, score in scores.items() if case.cell == cell and case.seed == CHOOSES)


def _recipes(scores: Scores) -> Iterator[str]:
    """A column for each recipe: the whole, then the differences."""
    techniques = dict.fromkeys(cell.without for cell in cells(MNIST) if cell.without and cell.is_recipe)
    yield f"| left out | {' | '.join(names())} |\n|---|{'---|' * len(names())}"
    yield f"| *nothing* | {' | '.join(_shown(found(Cell(name, LARGE), scores)) for name in names())} |"
    wanted = set(cells(MNIST))
    for what in techniques:
        row = [left_out(cell, scores) if (cell := Cell(name, LARGE, what)) in wanted else "" for name in names()]
        yield f"| {what} | {' | '.join(row)} |"


def left_out(cell: Cell, scores: Scores) -> str:
    """The difference from the whole in points, bold if it shows; '...' if it is not measured."""
    whole, without = found(replace(cell, without=""), scores), found(cell, scores)
    if not whole or not without or min(whole.seeds, without.seeds) < FEWEST:
        return "..."
    difference = without.mean - whole.mean
    shown = f"{difference:+.2f}"
    return f"**{shown}**" if abs(difference) > 2 * math.hypot(whole.error, without.error) else shown


def over_batches(scores: Scores) -> Chart:
    lines = []
    for number, (side, rate) in enumerate((side, rate) for side in SIDES for rate in (0, None)):
        each = [(batch, found(Cell(side, batch), scores, rate)) for batch in BATCHES]
        have = [(float(batch), one) for batch, one in each if one]
        if have:
            band = [(x, one.mean - one.error, one.mean + one.error) for x, one in have]
            name = f"{NAMES[side]}, {'best rate' if rate is None else 'by the rule'}"
            lines.append(ChartLine(name, [(x, one.mean) for x, one in have], number, True, band))
    return Chart("accuracy over the batch", "images a step", lines)


def over_rates(scores: Scores) -> Chart:
    curves = {side: _curve(scores, Cell(side, LARGE)) for side in SIDES}
    lines = [
        ChartLine(NAMES[side], points, 2 * number + 1, True)
        for number, (side, points) in enumerate(curves.items())
        if points
    ]
    return Chart("accuracy over the rate", "doublings of the rule's rate", lines)


def picture(chart: Chart) -> str:
    """A file of its own: with its colours, in twice the size."""
    drawn = str(chart.svg).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" width="720" height="432" ', 1)
    head, _, rest = drawn.partition(">")
    return f'{head}>{STYLE}<rect width="100%" height="100%" fill="#fff"/>{rest}\n'


if __name__ == "__main__":
    held = read(RESULTS)
    page = DOCS / "reference" / "large-batches.md"
    page.write_text(text())
    for name, chart in (("large-batches.svg", over_batches(held)), ("large-batches-rates.svg", over_rates(held))):
        if chart.lines:
            page.with_name(name).write_text(picture(chart))
