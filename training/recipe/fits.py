"""The checks of a recipe's keys against each other and against the number of ranks."""

from __future__ import annotations

from collections.abc import Iterator

from training.recipe import fits_phases
from training.recipe.misfit import Misfit, of_batch, of_range
from training.recipe.misfit import undivided as undivided
from training.recipe.names import OPTIMIZERS
from training.recipe.train import LarsKeys, LossScaleKeys, OptimizerKeys, SyncKeys, Train

OF_FILES = ("imagefolder", "tar-shards")
SHARDS_NEED = "sync.all_reduce torus, sync.wire fp32, sync.every 1 and a precision other than fp16"


def misfits(train: Train, ranks: int, stretch: tuple[float, float] | None = None) -> Iterator[Misfit]:
    """Every key that does not go with another, or with `ranks` ranks.

    `stretch` holds the epochs that these ranks train; None if they train all.
    """
    if not train.phases:
        yield from of_batch("train.batch", train, train.batch, ranks)
    yield from of_range("train.data.area", train.data.area)
    yield from of_range("train.data.aspect", train.data.aspect)
    if train.data.name in OF_FILES and not train.data.options.get("root"):
        yield Misfit("train.data.name", f"{train.data.name} needs a folder", "write it as 'root' in train.data.options")
    yield from fits_phases.misfits(train, ranks, stretch)
    if train.optimizer.name != "lars" and train.optimizer.lars != LarsKeys():
        yield Misfit("train.optimizer.lars", "is for the optimizer lars", "write 'name: lars'")
    yield from _momentum(train.optimizer)
    if train.precision != "fp16" and train.loss_scale != LossScaleKeys():
        yield Misfit("train.loss_scale", "is for fp16", "write 'precision: fp16'")
    yield from _norm(train, ranks)
    if train.sync.all_reduce != "hybrid" and train.sync.hybrid_bytes != SyncKeys().hybrid_bytes:
        yield Misfit("train.sync.hybrid_bytes", "is for the all-reduce hybrid", "write 'all_reduce: hybrid'")
    if train.sync.every > 1:
        yield from _local_sgd(train)
    if train.optimizer.name == "lars" and not shards_fit(train):
        yield Misfit("train.optimizer.lars.form", f"'sharded' needs {SHARDS_NEED}", "write 'auto'")


def shards_fit(train: Train) -> bool:
    """Whether LARS can move shards, if the recipe wants that."""
    sync = train.sync
    fits = sync.all_reduce == "torus" and sync.wire == "fp32" and sync.every == 1 and train.precision != "fp16"
    return train.optimizer.lars.form != "sharded" or fits


def _norm(train: Train, ranks: int) -> Iterator[Misfit]:
    norm = train.norm
    if norm.statistics == "last" and norm.momentum is not None:
        yield Misfit("train.norm.momentum", "is for 'statistics: moving'; 'last' has no averages", "write 'null'")
    if ranks % norm.ranks:
        near = max(size for size in range(1, ranks + 1) if ranks % size == 0 and size <= norm.ranks)
        yield Misfit("train.norm.ranks", f"{ranks} ranks do not divide into groups of {norm.ranks}", f"try {near}")
    if norm.ranks > 1 and train.sync.every > 1:
        why = "the ranks of a group must have the same weights"
        yield Misfit("train.norm.ranks", f"above 1 does not go with 'sync.every' above 1: {why}", "write 1")


def _momentum(optimizer: OptimizerKeys) -> Iterator[Misfit]:
    """The keys that a built-in optimizer would not read; the user's own may read any key."""
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
