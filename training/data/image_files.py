"""Images in files: in folders, or in tar files.

imagefolder   as in ImageNet: ROOT/train/CLASS/*.jpg and ROOT/val/CLASS/*
tar-shards    in WebDataset's convention: ROOT/train-*.tar and ROOT/val-*.tar with KEY.jpg and KEY.cls
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torusrun.training.data.images.shards import known_shards, open_shards
from torusrun.training.data.images.stored import ImageSettings, check_counts, folder_of, known_facts
from torusrun.training.data.images.trees import open_trees
from torusrun.training.recipe.facts import DataFacts
from torusrun.training.recipe.train import DataKeys

if TYPE_CHECKING:
    from torusrun.training.data.images.dataset import Images


def build_imagefolder(
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


def facts_imagefolder(data: DataKeys) -> DataFacts | None:
    """The facts_imagefolder from the options, else from the folder, listed once; None if this machine cannot see it."""
    return known_facts(data, open_trees)


def build_tar_shards(
    *,
    seed: int,
    root: str = "",
    local: str | None = None,
    samples: int | None = None,
    test_samples: int | None = None,
    classes: int | None = None,
    max_corrupt: float = 0.001,
    test_batch: int = 64,
    draft: bool = True,
) -> Images:
    """The images in the shards below `root`, read from copies below `local` on each node if that is given.

    `samples`, `test_samples` and `classes` are checked if they are given. Raises ConfigError for shards that do not
    follow this convention, or that cannot be copied.
    """
    from torusrun.training.data.images.dataset import Images
    from torusrun.training.data.images.local import staged

    settings = ImageSettings(max_corrupt, test_batch, draft).checked()
    halves = open_shards(folder_of(root))
    check_counts(halves, samples=samples, test_samples=test_samples, classes=classes)
    source = halves.train
    folder = source.root if local is None or local == "" else staged(source.root, source.stamps, local)
    for half in (halves.train, halves.test):
        half.read_from(folder)
    return Images(halves, seed, settings)


def facts_tar_shards(data: DataKeys) -> DataFacts | None:
    """The facts_tar_shards from the options, else from the index, if this user's runs have made one; else None."""
    return known_facts(data, known_shards)
