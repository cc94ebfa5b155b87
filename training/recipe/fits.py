"""The checks of a recipe: its keys and phases against each other and the number of ranks, and the options of built-ins.

They are made before the job waits in the queue: nothing is built, torch is not imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from torusrun.training.counted import counted
from torusrun.training.data.images.stored import check_options, facts_of
from torusrun.training.data.packed_file import SOURCES
from torusrun.training.recipe.facts import data_facts, model_facts
from torusrun.training.recipe.names import DATA_SETS, MODELS, OPTIMIZERS, Names
from torusrun.training.recipe.near import did_you_mean
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import LOSS_SCALE, DataKeys, LarsKeys, OptimizerKeys, PhaseKeys, ScheduleKeys, Train

OF_FILES = ("imagefolder", "tar-shards")


class Misfit(NamedTuple):
    """A key below `train` that cannot be combined with others. `advice` says how to correct it in a file."""

    key: str
    message: str
    advice: str


def misfits(train: Train, ranks: int) -> Iterator[Misfit]:
    """Every key that cannot be combined with another, or with `ranks` ranks."""
    if train.phases:
        yield from _phases(train, ranks)
    else:
        yield from _batch("train.batch", train, train.batch, ranks)
    yield from _ranges("train.data", train.data)
    if train.data.name in OF_FILES and not train.data.options.get("root"):
        yield Misfit("train.data.name", f"{train.data.name} needs a folder", "write it as 'root' in train.data.options")
    if train.optimizer.name != "lars" and train.optimizer.lars != LarsKeys():
        yield Misfit("train.optimizer.lars", "is for the optimizer lars", "write 'name: lars'")
    yield from _momentum(train.optimizer)
    if train.precision != "fp16" and train.loss_scale != LOSS_SCALE:
        yield Misfit("train.loss_scale", "is for fp16", "write 'precision: fp16'")
    yield from _norm(train, ranks)
    if train.checkpoints.memory and train.norm.statistics == "last":
        why = "cannot be combined with 'norm: {statistics: last}': the ranks have different statistics after a step"
        yield Misfit("train.checkpoints.memory", why, "write 'memory: false', or 'statistics: moving'")
    if train.model.new and not train.model.weights:
        yield Misfit("train.model.new", "is for given weights", "write their file as 'weights'")


def _norm(train: Train, ranks: int) -> Iterator[Misfit]:
    norm = train.norm
    if norm.statistics == "last" and norm.momentum is not None:
        yield Misfit("train.norm.momentum", "is for 'statistics: moving'; 'last' has no averages", "write 'null'")
    if ranks % norm.ranks:
        near = max(size for size in range(1, ranks + 1) if ranks % size == 0 and size <= norm.ranks)
        yield Misfit("train.norm.ranks", f"{ranks} ranks do not divide into groups of {norm.ranks}", f"try {near}")


def _momentum(optimizer: OptimizerKeys) -> Iterator[Misfit]:
    """The keys that a built-in optimizer would not read; the user's own may read any key."""
    if optimizer.name not in OPTIMIZERS.known:
        return
    elsewhere = {
        "nesterov": ("", {"sgd"}),
        "lr_in_momentum": ("lars.lr_in_momentum", {"sgd"}),
        "decay_vectors": ("lars.skip", {"sgd", "rmsprop-warmup"}),
    }
    for name, (instead, readers) in elsewhere.items():
        if getattr(optimizer, name) and optimizer.name not in readers:
            advice = f"see train.optimizer.{instead}" if instead and optimizer.name == "lars" else "leave it out"
            yield Misfit(f"train.optimizer.{name}", f"is not for the optimizer {optimizer.name}", advice)
    inside = {"sgd": optimizer.lr_in_momentum, "lars": optimizer.lars.lr_in_momentum}.get(optimizer.name, False)
    if optimizer.momentum_correction and not inside:
        where = "lars: {lr_in_momentum: true}" if optimizer.name == "lars" else "lr_in_momentum: true"
        why = "is for a learning rate inside the momentum"
        yield Misfit("train.optimizer.momentum_correction", why, f"write '{where}', or leave it out")


def _phases(train: Train, ranks: int) -> Iterator[Misfit]:
    yield from _ends(train)
    yield from _rates(train)
    yield from dict.fromkeys(_batches(train, ranks))
    for number, phase in enumerate(train.phases):
        yield from _ranges(f"train.phases[{number}]", phase)


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
            f"train.phases[{number}]", why, "write 'lr' in all phases, or in none: train.schedule then sets it"
        )
    if not without and train.schedule != ScheduleKeys():
        yield Misfit("train.schedule", "is not used: the phases set the learning rate", "leave it, or 'lr', out")
    for number, phase in enumerate(train.phases):
        if phase.lr is not None and len(phase.lr) == 2:
            continue
        given = {"reach": phase.reach is not None, "power": phase.power != 1.0}
        for key in (key for key, is_given in given.items() if is_given):
            yield Misfit(_key(number, key), "is for a rate that changes", "write 'lr: [from, to]', or leave it out")


def _batches(train: Train, ranks: int) -> Iterator[Misfit]:
    key, batch = "train.batch", train.batch
    for number, phase in enumerate(train.phases):
        if phase.batch is not None:
            key, batch = _key(number, "batch"), phase.batch
        yield from _batch(key, train, batch, ranks)


def _key(number: int, name: str) -> str:
    return f"train.phases[{number}].{name}"


def undivided(train: Train, batch: int, ranks: int) -> str | None:
    """The divisor that a batch must have and does not; None if it divides."""
    if batch >= 1 and batch % (ranks * train.accumulate) == 0:
        return None
    return counted(ranks, "rank") + (f" x {train.accumulate} (accumulate)" if train.accumulate > 1 else "")


def _batch(key: str, train: Train, batch: int, ranks: int) -> Iterator[Misfit]:
    """A misfit if the batch at `key` does not divide among the ranks."""
    if by := undivided(train, batch, ranks):
        parts = ranks * train.accumulate
        near = max(1, round(batch / parts)) * parts
        yield Misfit(key, f"{batch} does not divide by {by}", f"try {near}")


def _ranges(where: str, crops: DataKeys | PhaseKeys) -> Iterator[Misfit]:
    """The empty ranges of random crops."""
    for name in ("area", "aspect"):
        low, high = getattr(crops, name, None) or (0, 0)
        if low > high:
            yield Misfit(f"{where}.{name}", f"[{low:g}, {high:g}] is empty", f"write [{high:g}, {low:g}]")


GONE = {"train.data.options.local": "; list the folder below 'stage' of the run file: it is copied to each node's disk"}
OF_OPTIMIZERS = {"sgd": (), "lars": (), "rmsprop-warmup": ("mu2", "eps", "centre", "period", "rms_rate")}


def complaints(train: Train) -> Iterator[tuple[str, str]]:
    """(key, error) for invalid options of built-ins; only the ranks know the options of the user's own functions."""
    data, model, optimizer = train.data, train.model, train.optimizer
    unknown = [
        *_unknown("train.data", data.name, data.options, _taken(DATA_SETS, data.name, "seed")),
        *_unknown("train.model", model.name, model.options, _taken(MODELS, model.name, "classes", "shape", "seed")),
        *_unknown("train.optimizer", optimizer.name, optimizer.options, OF_OPTIMIZERS.get(optimizer.name)),
    ]
    yield from unknown
    if unknown:
        return
    try:
        if data.name in (*OF_FILES, *SOURCES):
            check_options(data)
    except ConfigError as error:
        yield "train.data.options", str(error)
    try:
        facts = facts_of(data, 1, 1, 1) if data.name in OF_FILES else data_facts(train)  # without listing files
        if facts:
            model_facts(train, facts)
    except ConfigError as error:
        yield "train.model", str(error)


def _taken(names: Names, name: str, *given: str) -> tuple[str, ...] | None:
    """The options of a built-in, beside the `given` arguments; None if `name` is not a built-in."""
    build = names.function(name, "build")
    return build and tuple(each for each in inspect.signature(build).parameters if each not in given)


def _unknown(key: str, name: str, options: Iterable[str], taken: tuple[str, ...] | None) -> Iterator[tuple[str, str]]:
    if taken is None:
        return
    for option in options:
        if option not in taken:
            named = f"{key}.options.{option}"
            advice = GONE.get(named) or did_you_mean(option, taken) or f"; it takes {', '.join(taken) or 'none'}"
            yield f"{key}.options", f"{named}: {name} has no such option{advice}"
