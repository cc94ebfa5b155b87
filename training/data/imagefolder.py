"""Images in folders, as in ImageNet: ROOT/train/CLASS/*.jpg and ROOT/val/CLASS/*."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training.data.images.image_options import ImageSettings, check_counts, counts, facts_of, folder_of, stated
from training.data.images.trees import open_trees
from training.recipe.facts import DataFacts
from training.recipe.reading import ConfigError
from training.recipe.train import DataKeys

if TYPE_CHECKING:
    from training.data.images.dataset import Images


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
    from training.data.images.dataset import Images

    settings = ImageSettings(max_corrupt, test_batch, draft).checked()
    trees = open_trees(folder_of(root))
    check_counts(trees, samples=samples, test_samples=test_samples, classes=classes)
    return Images(trees, seed, settings)


def facts(data: DataKeys) -> DataFacts | None:
    """The facts from the options, else from the folder, listed once; None if this machine cannot see it."""
    if said := stated(data):
        return said
    try:
        return facts_of(data, *counts(open_trees(folder_of(str(data.options.get("root", ""))))))
    except ConfigError:
        return None
