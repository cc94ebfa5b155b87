"""The builders and the facts of the packed data sets, for the login node: without torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from torusrun.training.data.images.stored import folder_of
from torusrun.training.data.packed import packed_file
from torusrun.training.data.packed.sources import CIFAR10, FASHION_MNIST, MNIST, SOURCES, Source
from torusrun.training.recipe.facts import DataFacts
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import DataKeys

if TYPE_CHECKING:
    from torusrun.training.data.packed.images import PackedImages


@dataclass(frozen=True)
class Named:
    """A data set in a packed file."""

    source: Source

    def build(self, *, seed: int, root: str = "") -> PackedImages:
        """The images in the packed file, which is in `root` or in the user's own folder. Raises ConfigError."""
        from torusrun.training.data.packed.images import PackedImages

        path = self.path(root)
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
        """The packed file."""
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


_CIFAR10 = Named(CIFAR10)
build_cifar10, facts_cifar10 = _CIFAR10.build, _CIFAR10.facts


_MNIST = Named(MNIST)
build_mnist, facts_mnist = _MNIST.build, _MNIST.facts


_FASHION_MNIST = Named(FASHION_MNIST)
build_fashion_mnist, facts_fashion_mnist = _FASHION_MNIST.build, _FASHION_MNIST.facts
