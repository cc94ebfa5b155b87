"""Epochs to 75.9 % top-1 by batch: MLPerf's reference convergence points, linear in the logarithm between them."""

from __future__ import annotations

from bisect import bisect_left
from math import log

from orchestrator.network.prediction import constants


def epochs_to_target(batch: int) -> float | None:
    """For ResNet-50 with LARS; None above the largest known batch. Below the smallest, the smallest's value."""
    points = sorted((int(b), constants.number(e)) for b, e in constants.table("epochs")["epochs_by_batch"].items())
    batches = [b for b, _ in points]
    if batch > batches[-1]:
        return None
    if batch <= batches[0]:
        return points[0][1]
    at = bisect_left(batches, batch)
    (low, few), (high, many) = points[at - 1], points[at]
    return few + (many - few) * log(batch / low) / log(high / low)


def images() -> int:
    """The number of images in an epoch of ImageNet."""
    return int(constants.number(constants.table("epochs")["images"]))


def validation_images() -> int:
    """The number of images in its validation set."""
    return int(constants.number(constants.table("epochs")["validation_images"]))
