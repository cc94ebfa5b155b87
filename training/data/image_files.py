"""Images in files: in folders, or in tar files.

imagefolder   as in ImageNet: ROOT/train/CLASS/*.jpg and ROOT/val/CLASS/*
tar-shards    in WebDataset's convention: ROOT/train-*.tar and ROOT/val-*.tar with KEY.jpg and KEY.cls
"""

from __future__ import annotations

import hashlib
import json
import os
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torusrun.training.data.images import index
from torusrun.training.data.images.index import Index
from torusrun.training.data.images.shards import kept_open, known_shards
from torusrun.training.data.images.stored import (
    ROOT,
    SUFFIXES,
    ImageSettings,
    Split,
    check_counts,
    folder_of,
    known_facts,
    telling,
)
from torusrun.training.files.staged import local
from torusrun.training.recipe.facts import DataFacts
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import DataKeys

if TYPE_CHECKING:
    from torusrun.training.data.images.dataset import Images

HALVES = ("train", "val")
Stamps = list[tuple[str, str, int]]
"""(train or val, class, time of the folder's last change): a file that comes or goes changes it."""


class Tree:
    """The images of one half, by class and name. Names stay bytes: a million names as text need 100 MB."""

    def __init__(self, root: Path, half: str, listed: Index, stamps: Any) -> None:
        self.root, self.stamps = root / half, stamps
        self._classes = listed.names["classes"]
        self._names = listed.numbers[f"{half} names"].tobytes()
        self._ends = listed.numbers[f"{half} ends"]
        self._class_ends = list(accumulate(listed.numbers[f"{half} counts"]))

    def __len__(self) -> int:
        return len(self._ends)

    def label(self, sample: int) -> int:
        return bisect_right(self._class_ends, sample)

    def name(self, sample: int) -> str:
        begin = self._ends[sample - 1] if sample else 0
        return f"{self.root}/{self._classes[self.label(sample)]}/{os.fsdecode(self._names[begin : self._ends[sample]])}"

    def identity(self) -> str:
        parts = json.dumps(self._classes).encode(), array("Q", self._class_ends).tobytes(), self._ends.tobytes()
        return hashlib.sha256(b"".join((*parts, self._names))).hexdigest()

    def read(self, sample: int, most: int = -1) -> bytes:
        with open(self.name(sample), "rb", buffering=0) as file:
            return file.read(most) or b""


def open_trees(root: Path) -> Split[Tree]:
    """The halves of the tree at `root`. Raises ConfigError for another layout."""
    stamps = _stamps(root)
    listed = index.kept("imagefolder", root, stamps, lambda: _listed(root, stamps))
    train, test = (Tree(root, half, listed, stamps) for half in HALVES)
    return Split(train, test, len(listed.names["classes"]))


def _stamps(root: Path) -> Stamps:
    stamps: Stamps = []
    for half in HALVES:
        with telling(root / half), os.scandir(root / half) as entries:
            folders = [each for each in entries if not each.name.startswith(".") and _is_folder(each)]
            classes = sorted((half, each.name, each.stat().st_mtime_ns) for each in folders)
        if not classes:
            raise ConfigError(f"{ROOT}: {root / half} has no folders; make one for each class, with its images")
        stamps += classes
    return stamps


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder. Raises ConfigError for a broken link: a class would be missing silently."""
    with telling(Path(entry.path)):
        if entry.is_symlink():
            entry.stat()
        return entry.is_dir()


def _listed(root: Path, stamps: Stamps) -> Index:
    classes = [name for half, name, _ in stamps if half == "train"]
    strange = sorted({name for half, name, _ in stamps if half == "val"} - set(classes))
    if strange:
        raise ConfigError(
            f"{ROOT}: {root / 'val' / strange[0]} is a class that {root / 'train'} does "
            f"not have; remove it there, or add its training images{_and_others(strange)}"
        )
    numbers: dict[str, array[int]] = {}
    for half in HALVES:
        present = {name for each, name, _ in stamps if each == half}
        images = [_images(root / half / name) if name in present else [] for name in classes]
        empty = [str(root / half / name) for name, held in zip(classes, images, strict=True) if not held]
        if empty and (half == "train" or len(empty) == len(classes)):
            raise ConfigError(
                f"{ROOT}: {empty[0]} holds no images ({', '.join(SUFFIXES)}); "
                f"put them there, or remove the folder{_and_others(empty)}"
            )
        numbers |= _packed(half, images)
    return Index({"classes": classes}, numbers)


def _images(folder: Path) -> list[bytes]:
    with telling(folder), os.scandir(folder) as entries:
        names = [each.name for each in entries if each.name.lower().endswith(SUFFIXES)]
    return sorted(os.fsencode(name) for name in names if not name.startswith("."))


def _packed(half: str, images: Sequence[Sequence[bytes]]) -> dict[str, array[int]]:
    names = [name for held in images for name in held]
    return {
        f"{half} names": array("B", b"".join(names)),
        f"{half} ends": array("Q", accumulate(map(len, names))),
        f"{half} counts": array("Q", map(len, images)),
    }


def _and_others(names: Sequence[str]) -> str:
    return f" (and {len(names) - 1} more like it)" if len(names) > 1 else ""


@dataclass(frozen=True)
class FilesOf:
    """Images in files of one layout.

    `opened` opens a folder of them. So does `known`, for the facts of a plan: it lists folders, once, but answers None
    for shards that no run of this user has read, which takes minutes.
    """

    opened: Callable[[Path], Split[Any]]
    known: Callable[[Path], Split[Any] | None]

    def build(
        self,
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
        halves = self.opened(local(folder_of(root)))
        check_counts(halves, samples=samples, test_samples=test_samples, classes=classes)
        return Images(halves, seed, settings)

    def facts(self, data: DataKeys) -> DataFacts | None:
        """The facts from the options, else from the folder as `known` reads it; None if that has no answer."""
        return known_facts(data, self.known)


_FOLDERS, _SHARDS = FilesOf(open_trees, known=open_trees), FilesOf(kept_open, known=known_shards)
build_imagefolder, facts_imagefolder = _FOLDERS.build, _FOLDERS.facts
build_tar_shards, facts_tar_shards = _SHARDS.build, _SHARDS.facts
