"""The checks of a recipe's phases against each other and against the number of ranks."""

from __future__ import annotations

from collections.abc import Iterator

from training.counted import counted
from training.recipe.misfit import Misfit, of_batch, of_range
from training.recipe.train import ScheduleKeys, Train


def misfits(train: Train, ranks: int, stretch: tuple[float, float] | None = None) -> Iterator[Misfit]:
    """Every key of a phase that does not go with another, or with `ranks` ranks.

    `stretch` holds the epochs that these ranks train; None if they train all.
    """
    if not train.phases:
        return
    yield from _ends(train)
    yield from _rates(train)
    if stretch or all(phase.nodes is None for phase in train.phases):
        yield from dict.fromkeys(_batches(train, ranks, *(stretch or (0.0, train.epochs))))
    for number, phase in enumerate(train.phases):
        for key, span in (("area", phase.area), ("aspect", phase.aspect)):
            if span:
                yield from of_range(_key(number, key), span)


def _ends(train: Train) -> Iterator[Misfit]:
    before = 0.0
    for number, phase in enumerate(train.phases):
        if phase.until <= before:
            why = f"{phase.until:.15g} is not after epoch {before:.15g}, where the phase before ends"
            yield Misfit(_key(number, "until"), why, "write the phases in their order")
        if phase.reach is not None and phase.reach <= before:
            why = f"{phase.reach:.15g} is not after epoch {before:.15g}, where the phase begins"
            yield Misfit(_key(number, "reach"), why, f"write {phase.until:.15g}, or leave it out")
        before = phase.until
    if before != train.epochs:
        last = len(train.phases) - 1
        why = f"{before:.15g} is the end of the last phase, and the run has {counted(train.epochs, 'epoch')}"
        instead = f", or 'epochs: {before:.15g}'" if before % 1 == 0 else ""
        yield Misfit(_key(last, "until"), why, f"write {train.epochs}{instead}")


def _rates(train: Train) -> Iterator[Misfit]:
    without = [number for number, phase in enumerate(train.phases) if phase.lr is None]
    for number in without if len(without) < len(train.phases) else ():
        why = "has no 'lr', and other phases have one"
        yield Misfit(
            f"train.phases[{number}]", why, "write 'lr' in all phases, or in none: train.schedule then says it"
        )
    if not without and train.schedule != ScheduleKeys():
        yield Misfit("train.schedule", "is not used: the phases say the learning rate", "leave it, or 'lr', out")
    for number, phase in enumerate(train.phases):
        if phase.lr is not None and len(phase.lr) == 2:
            continue
        given = {"reach": phase.reach is not None, "shape": phase.shape != "polynomial", "power": phase.power != 1.0}
        for key in (key for key, is_given in given.items() if is_given):
            yield Misfit(_key(number, key), "is for a rate that changes", "write 'lr: [from, to]', or leave it out")


def _batches(train: Train, ranks: int, begins: float, ends: float) -> Iterator[Misfit]:
    key, batch, start = "train.batch", train.batch, 0.0
    for number, phase in enumerate(train.phases):
        if phase.batch is not None:
            key, batch = _key(number, "batch"), phase.batch
        if start < ends and phase.until > begins:
            yield from of_batch(key, train, batch, ranks)
        start = phase.until


def _key(number: int, name: str) -> str:
    return f"train.phases[{number}].{name}"
