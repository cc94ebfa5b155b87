"""The ablations of a recipe: for each technique, the recipe's training without it.

A function returns the training unchanged if the recipe does not have its technique.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from torusrun.training.recipe.train import LarsKeys, OptimizerKeys, PhaseKeys, Train

WithOut = Callable[[Train], Train]
BASE_RATE, BASE_BATCH = 0.1, 64  # the reference's; SGD in place of LARS gets it in proportion to the batch


def warm_up(train: Train) -> Train:
    """Without warm-up: begin at the last rate of the first phase."""
    first = train.phases[0]
    if not first.lr or len(first.lr) < 2 or first.lr[0] >= first.lr[1]:
        return train
    return replace(train, phases=(replace(first, lr=first.lr[1:]), *train.phases[1:]))


def lars(train: Train) -> Train:
    """SGD with momentum in place of LARS, at the reference's rate in proportion to the batch."""
    if train.optimizer.name != "lars":
        return train
    return _as_sgd(train)


def rmsprop(train: Train) -> Train:
    """SGD from the start, without RMSprop."""
    return train if train.optimizer.name != "rmsprop-warmup" else replace(train, optimizer=_sgd(train))


def label_smoothing(train: Train) -> Train:
    return replace(train, label_smoothing=0.0)


def batch_control(train: Train) -> Train:
    """The largest batch from the start, with the same rates."""
    batches = [phase.batch for phase in train.phases if phase.batch]
    if len(set(batches)) < 2:
        return train
    return _phases(train, lambda phase: replace(phase, batch=max(batches)))


def image_sizes(train: Train) -> Train:
    """The data set's own size in all phases, of test images too."""
    if len({phase.size for phase in train.phases if phase.size}) < 2:
        return train
    same = _phases(train, lambda phase: replace(phase, size=None, test_size=None))
    return replace(same, data=replace(train.data, test_size=None))


def augmentation_off(train: Train) -> Train:
    """Random changes of images until the end."""
    if all(phase.augment is not False for phase in train.phases):
        return train
    return _phases(train, lambda phase: replace(phase, augment=None))


def decay_schedule(train: Train) -> Train:
    return _phases(train, lambda phase: replace(phase, weight_decay=None))


def last_statistics(train: Train) -> Train:
    """Moving averages in place of the last batch's statistics."""
    norm = train.norm
    return train if norm.statistics != "last" else replace(train, norm=replace(norm, statistics="moving"))


def norm_over_ranks(train: Train) -> Train:
    """Normalization of every rank by only its own samples."""
    return replace(train, norm=replace(train.norm, ranks=1))


def zero_gamma(train: Train) -> Train:
    """The last scale of every block begins at 1, not 0."""
    if train.model.options.get("zero_gamma") is not True:
        return train
    return replace(train, model=replace(train.model, options={**train.model.options, "zero_gamma": False}))


def no_decay_on_vectors(train: Train) -> Train:
    """Decay, and LARS's ratio, for batch norm and biases too."""
    optimizer = train.optimizer
    if optimizer.name == "lars":
        if optimizer.lars.skip == "nothing":
            return train
        return replace(train, optimizer=replace(optimizer, lars=replace(optimizer.lars, skip="nothing")))
    return replace(train, optimizer=replace(optimizer, decay_vectors=True))


def sixteen_bits(train: Train) -> Train:
    """Gradients travel in fp32, not in 16 bits."""
    return replace(train, sync=replace(train.sync, wire="fp32"))


TECHNIQUES: dict[str, WithOut] = {
    "warm-up": warm_up,
    "LARS": lars,
    "RMSprop warm-up": rmsprop,
    "label smoothing": label_smoothing,
    "batch-size control": batch_control,
    "image sizes": image_sizes,
    "augmentation off at the end": augmentation_off,
    "weight decay by phase": decay_schedule,
    "last batch's statistics": last_statistics,
    "batch norm over ranks": norm_over_ranks,
    "zero gamma": zero_gamma,
    "no decay on vectors": no_decay_on_vectors,
    "gradients in 16 bits": sixteen_bits,
}


def ablations(train: Train) -> Iterator[tuple[str, Train]]:
    """(technique, training without it) for each technique of the training."""
    for name, without in TECHNIQUES.items():
        changed = without(train)
        if changed != train:
            yield name, changed


def _phases(train: Train, change: Callable[[PhaseKeys], PhaseKeys]) -> Train:
    return replace(train, phases=tuple(change(phase) for phase in train.phases))


def _as_sgd(train: Train) -> Train:
    """SGD with all rates in proportion, so that the highest is linear in the batch."""
    peak = max(rate for phase in train.phases for rate in phase.lr or (0.0,))
    batch = max(phase.batch or train.batch for phase in train.phases)
    factor = BASE_RATE * batch / BASE_BATCH / peak
    scaled = _phases(
        train, lambda phase: replace(phase, lr=tuple(rate * factor for rate in phase.lr) if phase.lr else None)
    )
    return replace(scaled, optimizer=_sgd(train))


def _sgd(train: Train) -> OptimizerKeys:
    optimizer = train.optimizer
    return replace(optimizer, name="sgd", lars=LarsKeys(), options={}, momentum_correction=False)
