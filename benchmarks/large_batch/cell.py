"""The cells of the study, and the training of each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast

from benchmarks.large_batch.study import Study
from benchmarks.recipe_ablations import ablations
from torusrun.training.recipe import published
from torusrun.training.recipe.train import DataKeys, ModelKeys, OptimizerKeys, ScheduleKeys, Train

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

    def train(self, study: Study) -> Train:
        """The training with the rate of the side's rule."""
        whole = (_recipe if self.is_recipe else _plain)(self.side, self.batch, study)
        return dict(_ablations(whole, self.is_recipe))[self.without] if self.without else whole


@dataclass(frozen=True)
class Case:
    """One training of a cell: with 2 ** `doubled` times the rate of the rule, and a seed."""

    cell: Cell
    doubled: int
    seed: int

    def train(self, study: Study) -> Train:
        train, times = self.cell.train(study), 2.0**self.doubled
        phases = tuple(
            replace(phase, lr=tuple(rate * times for rate in phase.lr) if phase.lr else None) for phase in train.phases
        )
        optimizer = replace(train.optimizer, lr=train.optimizer.lr * times)
        return replace(train, seed=self.seed, phases=phases, optimizer=optimizer)


def cells(study: Study) -> Iterator[Cell]:
    """All cells, those first that the page needs most."""
    yield from dict.fromkeys((*_first(study), *(Cell(side, batch) for side in SIDES for batch in study.batches)))
    if study.large is None:
        return
    wholes = [Cell(name, study.large) for name in published.names()]
    yield from wholes
    yield from (Cell(side, study.large, "warm-up") for side in SIDES)
    for whole in wholes:
        yield from (replace(whole, without=what) for what, _ in _ablations(whole.train(study), recipe=True))


def _first(study: Study) -> Iterator[Cell]:
    """Those that say what a large batch costs."""
    yield Cell("sgd", study.batches[0])
    yield from (Cell(side, study.large or study.batches[-1]) for side in SIDES)
    yield from (Cell(side, study.batches[-1]) for side in SIDES)


def _plain(side: str, batch: int, study: Study) -> Train:
    """The rate of SGD is that of Goyal et al. 2017, 0.1 for 256; that of LARS is NVIDIA's in MLPerf, 10 for 3,328."""
    sgd = OptimizerKeys("sgd", lr=0.1 * batch / 256, weight_decay=1e-4)
    lars = OptimizerKeys("lars", lr=10 * math.sqrt(batch / 3328), weight_decay=2e-4)
    return Train(
        device="cpu", epochs=study.epochs, batch=batch, log_every_steps=QUIET, precision=study.precision,
        data=DataKeys(study.data, size=study.size), model=ModelKeys("resnet-small", options={**study.options}),
        optimizer=lars if side == "lars" else sgd, schedule=ScheduleKeys("cosine", warmup_epochs=study.warm_up),
    )  # fmt: skip


@cache
def _recipe(name: str, batch: int, study: Study) -> Train:
    """The recipe as `torusrun submit` would fit it to this data set and one rank, with `batch` as its largest."""
    recipe = published.load(name).train
    largest = max((phase.batch for phase in recipe.phases if phase.batch), default=recipe.batch)
    wanted = Train(
        recipe=cast(Any, name), device="cpu", epochs=study.epochs, batch=round(batch * recipe.batch / largest),
        log_every_steps=QUIET, data=DataKeys(study.data, size=study.size), model=ModelKeys("resnet-small"),
    )  # fmt: skip
    train = published.resolve(wanted, GIVEN, 1, gpus=False).train
    options = {**train.model.options, **study.options}
    return replace(train, model=replace(train.model, options=options))


def _ablations(whole: Train, recipe: bool) -> Iterator[tuple[str, Train]]:
    if recipe:
        yield from (each for each in ablations(whole) if each[0] not in OF_SEVERAL_RANKS)
    else:
        yield "warm-up", replace(whole, schedule=replace(whole.schedule, warmup_epochs=0.0))
