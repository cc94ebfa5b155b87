"""The handwritten digits that scikit-learn ships (UCI optdigits): 1797 images of 8 x 8, ten classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training.data.digits_images import Digits

TRAIN_SAMPLES, TEST_SAMPLES = 1437, 360
CLASSES = 10
SHAPE = (1, 8, 8)


def build(*, seed: int) -> Digits:
    """The images, in memory."""
    from training.data.digits_images import Digits

    return Digits(seed)
