"""The cells of the study, and the training of each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast

from benchmarks.recipe_ablations import ablations
from training.recipe import published
from training.recipe.train import DataKeys, ModelKeys, OptimizerKeys, ScheduleKeys, Train

DATA, SIZE, WIDTHS = "mnist", 14, (8, 16, 32)
EPOCHS, WARM_UP = 15, 3.0  # of them
BATCHES, LARGE = (256, 2048, 8192, 15000), 8192
SIDES = ("sgd", "lars")
OF_SEVERAL_RANKS = ("batch norm over ranks", "gradients in 16 bits")
GIVEN = frozenset({"recipe", "device", "epochs", "batch", "log_every_steps", "data.name", "data.size", "model.name"})
QUIET = 10**6  # steps between two lines about the training


@dataclass(frozen=True)
class Cell:
    """A side (SIDES, or the name of a recipe), its largest batch in samples, and the technique that is left out."""

    side: str
    batch: int
    without: str = ""

    @property
    def is_recipe(self) -> bool:
        return self.side not in SIDES

    def train(self) -> Train:
        """The training with the rate of the side's rule."""
        whole = _recipe(self.side, self.batch) if self.is_recipe else _plain(self.side, self.batch)
        return dict(_ablations(whole, self.is_recipe))[self.without] if self.without else whole


@dataclass(frozen=True)
class Case:
    """One training of a cell: with 2 ** `doubled` times the rate of the rule, and a seed."""

    cell: Cell
    doubled: int
    seed: int

    def train(self) -> Train:
        train, times = self.cell.train(), 2.0**self.doubled
        phases = tuple(
            replace(phase, lr=tuple(rate * times for rate in phase.lr) if phase.lr else None) for phase in train.phases
        )
        optimizer = replace(train.optimizer, lr=train.optimizer.lr * times)
        return replace(train, seed=self.seed, phases=phases, optimizer=optimizer)


def cells() -> Iterator[Cell]:
    """All cells, those first that the page needs most."""
    yield from (Cell("sgd", BATCHES[0]), *(Cell(side, LARGE) for side in SIDES))
    yield from (Cell(side, batch) for batch in (15000, 2048) for side in SIDES)
    yield from (Cell(name, LARGE) for name in published.names())
    yield Cell("lars", BATCHES[0])
    yield from (Cell(side, LARGE, "warm-up") for side in SIDES)
    for name in published.names():
        whole = Cell(name, LARGE)
        yield from (replace(whole, without=what) for what, _ in _ablations(whole.train(), recipe=True))


def _plain(side: str, batch: int) -> Train:
    """The rate of SGD is that of Goyal et al. 2017, 0.1 for 256; that of LARS is NVIDIA's in MLPerf, 10 for 3,328."""
    sgd = OptimizerKeys("sgd", lr=0.1 * batch / 256, weight_decay=1e-4)
    lars = OptimizerKeys("lars", lr=10 * math.sqrt(batch / 3328), weight_decay=2e-4)
    return Train(
        device="cpu", epochs=EPOCHS, batch=batch, log_every_steps=QUIET,
        data=DataKeys(DATA, size=SIZE), model=ModelKeys("resnet-small", options={"widths": WIDTHS}),
        optimizer=lars if side == "lars" else sgd, schedule=ScheduleKeys("cosine", warmup_epochs=WARM_UP),
    )  # fmt: skip


@cache
def _recipe(name: str, batch: int) -> Train:
    """The recipe as `torusrun submit` would fit it to this data set and one rank, with `batch` as its largest."""
    recipe = published.load(name).train
    largest = max((phase.batch for phase in recipe.phases if phase.batch), default=recipe.batch)
    wanted = Train(
        recipe=cast(Any, name), device="cpu", epochs=EPOCHS, batch=round(batch * recipe.batch / largest),
        log_every_steps=QUIET, data=DataKeys(DATA, size=SIZE), model=ModelKeys("resnet-small"),
    )  # fmt: skip
    given = frozenset(
        {"recipe", "device", "epochs", "batch", "log_every_steps", "data.name", "data.size", "model.name"}
    )
    train = published.resolve(wanted, given, 1, gpus=False).train
    options = {**train.model.options, "widths": WIDTHS}
    return replace(train, model=replace(train.model, options=options))


def _ablations(whole: Train, recipe: bool) -> Iterator[tuple[str, Train]]:
    if recipe:
        yield from (each for each in ablations(whole) if each[0] not in OF_SEVERAL_RANKS)
    else:
        yield "warm-up", replace(whole, schedule=replace(whole.schedule, warmup_epochs=0.0))
