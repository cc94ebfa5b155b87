"""Data sets that need no folder of images, described for the login node, without torch.

digits            handwritten digits that scikit-learn ships (UCI optdigits): 1797 of 8 x 8, ten classes
synthetic         random images, for throughput: nothing is read or decoded
cifar10, mnist    in one packed file each, which `torusrun data get` makes; no job downloads it
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from torusrun.training.data import packed_file
from torusrun.training.data.images.stored import SIDE, folder_of
from torusrun.training.data.packed_file import CIFAR10, MNIST, SOURCES, Source
from torusrun.training.files.staged import local
from torusrun.training.recipe.facts import DataFacts
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import DataKeys

if TYPE_CHECKING:
    from torusrun.training.data.named_images import Digits, PackedImages, RandomImages

DIGITS = DataFacts(train_samples=1437, test_samples=360, classes=10, shape=(1, 8, 8))


def build_digits(*, seed: int) -> Digits:
    """The images, in memory."""
    from torusrun.training.data.named_images import Digits

    return Digits(DIGITS, seed)


def facts_digits(data: DataKeys) -> DataFacts:
    """The digits in the recipe's first size."""
    return replace(DIGITS, shape=(1, data.size, data.size)) if data.size else DIGITS


SAMPLES, TEST_SAMPLES, CLASSES = 100_000, 1000, 1000


def build_synthetic(
    *, seed: int, samples: int = SAMPLES, test_samples: int = TEST_SAMPLES, classes: int = CLASSES, channels: int = 3
) -> RandomImages:
    """`samples` images of the recipe's size in `classes` classes. Raises ConfigError for invalid numbers."""
    from torusrun.training.data.named_images import RandomImages

    asked = {"samples": samples, "test_samples": test_samples, "classes": classes, "channels": channels}
    for name, number in asked.items():
        if type(number) is not int or number < 1:
            raise ConfigError(f"train.data.options.{name} must be a whole number from 1 on, not {number!r}")
    return RandomImages(seed, samples, test_samples, classes, channels)


def facts_synthetic(data: DataKeys) -> DataFacts:
    """The facts from the options."""
    side = data.size or SIDE
    samples, test_samples = _number(data, "samples", SAMPLES), _number(data, "test_samples", TEST_SAMPLES)
    return DataFacts(
        samples, test_samples, _number(data, "classes", CLASSES), (_number(data, "channels", 3), side, side)
    )


def _number(data: DataKeys, name: str, default: int) -> int:
    number = data.options.get(name, default)
    return number if isinstance(number, int) else default


@dataclass(frozen=True)
class Named:
    """A data set in a packed file."""

    source: Source

    def build(self, *, seed: int, root: str = "") -> PackedImages:
        """The images in the packed file, which is in `root` or in the user's own folder. Raises ConfigError."""
        from torusrun.training.data.named_images import PackedImages

        path = local(self.path(root))
        try:
            begins = packed_file.checked(self.source, path)
        except FileNotFoundError:
            raise ConfigError(f"train.data: {self.missing(path)}") from None
        except OSError as error:
            raise ConfigError(f"train.data: {path}: cannot be read: {error.strerror}") from None
        return PackedImages(self.source, path, begins, seed)

    def facts(self, data: DataKeys) -> DataFacts:
        """The counts, with images in the recipe's first size."""
        channels, *_ = self.source.facts.shape
        return replace(self.source.facts, shape=(channels, data.size, data.size)) if data.size else self.source.facts

    def path(self, root: str = "") -> Path:
        return (folder_of(root) if root else packed_file.folder()) / self.source.file

    def missing(self, path: Path) -> str:
        """The error for a data set that is not prepared."""
        into = "" if path.parent == packed_file.folder() else f" --into {path.parent}"
        name = self.source.name
        return f"{name} is not prepared: there is no {path}; `torusrun data get {name}{into}` prepares it"


def packed_path(data: DataKeys) -> Path | None:
    """The packed file that `train.data` needs; None if it needs none, or only the ranks know its folder."""
    source, root = SOURCES.get(data.name), data.options.get("root", "")
    if source is None or not isinstance(root, str) or "$" in root or (root and root[0] not in "/~"):
        return None
    return Named(source).path(root)


_CIFAR10, _MNIST = Named(CIFAR10), Named(MNIST)
build_cifar10, facts_cifar10 = _CIFAR10.build, _CIFAR10.facts
build_mnist, facts_mnist = _MNIST.build, _MNIST.facts
