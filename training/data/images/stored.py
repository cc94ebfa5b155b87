"""The files of an image data set in any layout: their interface, the options, and the errors of folders."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from torusrun.training.recipe.facts import DataFacts
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import DataKeys

ROOT = "train.data.options.root"
SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".webp", ".tif", ".tiff")


class Stored(Protocol):
    """The images of one half of a data set, numbered from 0. Reading is safe from several threads."""

    root: Path
    stamps: Any

    def __len__(self) -> int: ...

    def label(self, sample: int) -> int:
        """The number of the image's class."""

    def name(self, sample: int) -> str:
        """The place of the image, for messages."""

    def identity(self) -> str:
        """A digest to identify the samples, their order and classes; the place of the files does not matter."""

    def read(self, sample: int, most: int = -1) -> bytes:
        """The file's bytes, or the first `most` of them. Raises OSError."""


S_co = TypeVar("S_co", bound=Stored, covariant=True)


@dataclass(frozen=True)
class Split(Generic[S_co]):
    """Training and test images, and the number of their classes."""

    train: S_co
    test: S_co
    classes: int


@contextmanager
def telling(path: Path) -> Iterator[None]:
    """Turns an OSError about `path` into a ConfigError with advice."""
    try:
        yield
    except FileNotFoundError:
        if path.is_symlink():
            raise ConfigError(
                f"{ROOT}: {path} is a link to {os.readlink(path)}, which does not exist; correct or remove the link "
                "(if the ranks run in an image, bind the folder to which it leads)"
            ) from None
        raise ConfigError(
            f"{ROOT}: there is no {path}; name the folder by its path on the ranks (bind it, if they run in an image)"
        ) from None
    except PermissionError:
        raise ConfigError(f"{ROOT}: {path} may not be read by this user; ask its owner for the right") from None
    except NotADirectoryError:
        raise ConfigError(f"{ROOT}: {path} is not a folder") from None
    except OSError as error:
        raise ConfigError(f"{ROOT}: {path} cannot be read: {error.strerror}") from None


SIDE = 224  # of images, in pixels, if the recipe gives none
COUNTS = ("samples", "test_samples", "classes")


class ImageSettings(NamedTuple):
    """The options that all data sets of image files have."""

    max_corrupt: float = 0.001
    test_batch: int = 64
    draft: bool = True

    def checked(self) -> ImageSettings:
        """These settings. Raises ConfigError if a value is invalid."""
        if type(self.max_corrupt) not in (int, float) or not 0 <= self.max_corrupt <= 1:
            raise _wrong("max_corrupt", "a share of the samples, from 0 to 1", self.max_corrupt)
        if type(self.test_batch) is not int or self.test_batch < 1:
            raise _wrong("test_batch", "a number of images", self.test_batch)
        if type(self.draft) is not bool:
            raise _wrong("draft", "true or false", self.draft)
        return self


def check_options(data: DataKeys) -> None:
    """Raises ConfigError for options that are invalid wherever the files are; it reads no file.

    Only the ranks know the values of the variables in a folder.
    """
    options: dict[str, Any] = dict(data.options)
    ImageSettings(**{name: options[name] for name in ImageSettings._fields if name in options}).checked()
    root = options.get("root")
    if root and not (isinstance(root, str) and "$" in root):
        folder_of(root)
    for name in COUNTS:
        if (count := options.get(name)) is not None and (type(count) is not int or count < 1):
            raise _wrong(name, "a whole number from 1 on", count)


def folder_of(root: str) -> Path:
    """The folder that the option `root` names. Raises ConfigError unless it is an absolute path."""
    if not root or not isinstance(root, str):
        raise ConfigError(f"{ROOT} is missing; write the absolute path of the folder in which the images are")
    path = Path(os.path.expandvars(os.path.expanduser(root)))
    if not path.is_absolute() or "$" in root and "$" in str(path):
        raise ConfigError(f"{ROOT}: {root!r} must be the absolute path of a folder, on every node the same")
    return path


def check_counts(split: Split[Stored], **asked: int | None) -> None:
    """Raises ConfigError if an option differs from the real number; None is not checked."""
    for (name, count), real in zip(asked.items(), counts(split), strict=True):
        if count is not None and type(count) is not int:
            raise _wrong(name, "a whole number", count)
        if count is not None and count != real:
            raise ConfigError(
                f"train.data.options.{name}: it is {count}, but {split.train.root} has {real}; correct it"
            )


def counts(split: Split[Stored]) -> tuple[int, int, int]:
    """The numbers of training samples, test samples and classes."""
    return len(split.train), len(split.test), split.classes


def stated(data: DataKeys) -> DataFacts | None:
    """The facts from the options `samples`, `test_samples` and `classes`, if all are given."""
    samples, test_samples, classes = (data.options.get(name) for name in COUNTS)
    if type(samples) is not int or type(test_samples) is not int or type(classes) is not int:
        return None
    return facts_of(data, samples, test_samples, classes)


def known_facts(data: DataKeys, known: Callable[[Path], Split[Any] | None]) -> DataFacts | None:
    """The facts from the options, else from the files that `known` reads in the folder; None if it returns none."""
    if facts := stated(data):
        return facts
    try:
        split = known(folder_of(str(data.options.get("root", ""))))
    except ConfigError:
        return None
    return facts_of(data, *counts(split)) if split else None


def facts_of(data: DataKeys, samples: int, test_samples: int, classes: int) -> DataFacts:
    """The facts of such images for a prediction, in the recipe's first size."""
    side = data.size or SIDE
    return DataFacts(samples, test_samples, classes, (3, side, side))


def _wrong(name: str, wanted: str, value: object) -> ConfigError:
    return ConfigError(f"train.data.options.{name} must be {wanted}, not {value!r}")
