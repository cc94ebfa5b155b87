"""Images in folders, as in ImageNet: ROOT/train/CLASS/*.jpg and ROOT/val/CLASS/*."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torusrun.training.data.images.image_options import ImageSettings, check_counts, folder_of, known_facts
from torusrun.training.data.images.trees import open_trees
from torusrun.training.recipe.facts import DataFacts
from torusrun.training.recipe.train import DataKeys

if TYPE_CHECKING:
    from torusrun.training.data.images.dataset import Images


def build(
    *,
    seed: int,
    root: str = "",
    samples: int | None = None,
    test_samples: int | None = None,
    classes: int | None = None,
    max_corrupt: float = 0.001,
    test_batch: int = 64,
    draft: bool = True,
) -> Images:
    """The images below `root`; `samples`, `test_samples` and `classes` are checked if they are given.

    Raises ConfigError for a folder with another layout.
    """
    from torusrun.training.data.images.dataset import Images

    settings = ImageSettings(max_corrupt, test_batch, draft).checked()
    trees = open_trees(folder_of(root))
    check_counts(trees, samples=samples, test_samples=test_samples, classes=classes)
    return Images(trees, seed, settings)


def facts(data: DataKeys) -> DataFacts | None:
    """The facts from the options, else from the folder, listed once; None if this machine cannot see it."""
    return known_facts(data, open_trees)
