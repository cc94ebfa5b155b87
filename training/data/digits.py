"""The handwritten digits that scikit-learn ships (UCI optdigits): 1797 images of 8 x 8, ten classes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from torusrun.training.recipe.facts import DataFacts
from torusrun.training.recipe.train import DataKeys

if TYPE_CHECKING:
    from torusrun.training.data.digits_images import Digits

FACTS = DataFacts(train_samples=1437, test_samples=360, classes=10, shape=(1, 8, 8))


def build(*, seed: int) -> Digits:
    """The images, in memory."""
    from torusrun.training.data.digits_images import Digits

    return Digits(FACTS, seed)


def facts(data: DataKeys) -> DataFacts:
    """The digits in the recipe's first size."""
    return replace(FACTS, shape=(1, data.size, data.size)) if data.size else FACTS
