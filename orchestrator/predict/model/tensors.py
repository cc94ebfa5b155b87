"""The tensors of ResNet-50 in the order of backward, and when the gradient of each is ready."""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate

from torusrun.orchestrator.predict.model import epochs
from torusrun.training.models import resnet50 as model
from torusrun.training.recipe.facts import DataFacts, Tensor


def photographs() -> DataFacts:
    """ImageNet as in the published runs."""
    return DataFacts(epochs.images(), epochs.validation_images(), classes=1000, shape=(3, 224, 224))


@lru_cache
def resnet50() -> tuple[Tensor, ...]:
    """161 tensors with 25,557,032 parameters in backward order: the fully connected layer first, conv1 last."""
    return tuple(reversed(model.facts(photographs()).tensors))


def ready_s(tensors: tuple[Tensor, ...], backward_s: float) -> list[float]:
    """Seconds from the start of backward until each gradient is ready.

    A tensor takes time in proportion to its multiplications (derived: batch norms take none here).
    """
    work = sum(tensor.work for tensor in tensors)
    return [done / work * backward_s for done in accumulate(tensor.work for tensor in tensors)]
