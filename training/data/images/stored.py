"""The interface of a data set's files in any layout, and the errors of folders that cannot be read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from torusrun.training.recipe.reading import ConfigError

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
