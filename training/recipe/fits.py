"""What must fit between the keys of a recipe, and with the number of ranks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from training.recipe.names import OPTIMIZERS
from training.recipe.train import LarsKeys, LossScaleKeys, OptimizerKeys, Train

SHARDS_NEED = "sync.all_reduce torus, sync.wire fp32, sync.every 1 and a precision other than fp16"


class Misfit(NamedTuple):
    """A key below `train` that does not go with others. `advice` is how to mend it in a file."""

    key: str
    message: str
    advice: str


def misfits(train: Train, ranks: int) -> Iterator[Misfit]:
    """Every key that does not go with another, or with so many ranks."""
    if by := undivided(train, train.batch, ranks):
        parts = ranks * train.accumulate
        near = max(1, round(train.batch / parts)) * parts
        yield Misfit("train.batch", f"{train.batch} does not divide by {by}", f"try {near}")
    if train.optimizer.name != "lars" and train.optimizer.lars != LarsKeys():
        yield Misfit("train.optimizer.lars", "is for the optimizer lars", "write 'name: lars'")
    yield from _momentum(train.optimizer)
    if train.precision != "fp16" and train.loss_scale != LossScaleKeys():
        yield Misfit("train.loss_scale", "is for fp16", "write 'precision: fp16'")
    if train.sync.every > 1:
        yield from _local_sgd(train)
    if train.optimizer.name == "lars" and not shards_fit(train):
        yield Misfit("train.optimizer.lars.form", f"'sharded' needs {SHARDS_NEED}", "write 'auto'")


def shards_fit(train: Train) -> bool:
    """Whether LARS, if it is to move shards, can."""
    sync = train.sync
    fits = sync.all_reduce == "torus" and sync.wire == "fp32" and sync.every == 1 and train.precision != "fp16"
    return train.optimizer.lars.form != "sharded" or fits


def undivided(train: Train, batch: int, ranks: int) -> str | None:
    """By what a batch must divide and does not."""
    if batch >= 1 and batch % (ranks * train.accumulate) == 0:
        return None
    return f"{ranks} ranks" if train.accumulate == 1 else f"{ranks} ranks x {train.accumulate} (accumulate)"


def _momentum(optimizer: OptimizerKeys) -> Iterator[Misfit]:
    """What a built-in optimizer would not read; one of the user's own may read any key."""
    if optimizer.name not in OPTIMIZERS.known:
        return
    elsewhere = {
        "nesterov": ("lars.nesterov", {"sgd"}),
        "lr_in_momentum": ("lars.lr_in_momentum", {"sgd"}),
        "decay_vectors": ("lars.skip", {"sgd", "rmsprop-warmup"}),
    }
    for name, (instead, readers) in elsewhere.items():
        if getattr(optimizer, name) and optimizer.name not in readers:
            advice = f"see train.optimizer.{instead}" if optimizer.name == "lars" else "leave it out"
            yield Misfit(f"train.optimizer.{name}", f"is not for the optimizer {optimizer.name}", advice)
    inside = {"sgd": optimizer.lr_in_momentum, "lars": optimizer.lars.lr_in_momentum}.get(optimizer.name, False)
    if optimizer.momentum_correction and not inside:
        where = "lars: {lr_in_momentum: true}" if optimizer.name == "lars" else "lr_in_momentum: true"
        why = "is for a learning rate inside the momentum"
        yield Misfit("train.optimizer.momentum_correction", why, f"write '{where}', or leave it out")


def _local_sgd(train: Train) -> Iterator[Misfit]:
    key = "train.sync.every"
    if train.sync.all_reduce == "ddp":
        yield Misfit(key, "above 1 does not go with 'all_reduce: ddp', which averages in every step", "write 'torus'")
    if train.precision == "fp16":
        why = "ranks would skip different steps where gradients overflow"
        yield Misfit(key, f"above 1 does not go with 'precision: fp16': {why}", "write 'bf16'")
