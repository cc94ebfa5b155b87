"""Random images, for throughput: nothing is read or decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torusrun.training.data.images.stored import SIDE
from torusrun.training.recipe.facts import DataFacts
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import DataKeys

if TYPE_CHECKING:
    from torusrun.training.data.synthetic_images import RandomImages

SAMPLES, TEST_SAMPLES, CLASSES = 100_000, 1000, 1000


def build(
    *, seed: int, samples: int = SAMPLES, test_samples: int = TEST_SAMPLES, classes: int = CLASSES, channels: int = 3
) -> RandomImages:
    """`samples` images of the recipe's size in `classes` classes. Raises ConfigError for invalid numbers."""
    from torusrun.training.data.synthetic_images import RandomImages

    asked = {"samples": samples, "test_samples": test_samples, "classes": classes, "channels": channels}
    for name, number in asked.items():
        if type(number) is not int or number < 1:
            raise ConfigError(f"train.data.options.{name} must be a whole number from 1 on, not {number!r}")
    return RandomImages(seed, samples, test_samples, classes, channels)


def facts(data: DataKeys) -> DataFacts:
    """The facts from the options."""
    side = data.size or SIDE
    samples, test_samples = _number(data, "samples", SAMPLES), _number(data, "test_samples", TEST_SAMPLES)
    return DataFacts(
        samples, test_samples, _number(data, "classes", CLASSES), (_number(data, "channels", 3), side, side)
    )


def _number(data: DataKeys, name: str, default: int) -> int:
    number = data.options.get(name, default)
    return number if isinstance(number, int) else default
