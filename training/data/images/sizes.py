"""The sizes of test images, measured once and kept in the index; an image with another size later is an error.

Reading the times of a hundred thousand files would be slow, so an image's size is compared when it is decoded.
"""

from __future__ import annotations

from array import array
from concurrent.futures import Executor
from functools import partial

from torusrun.training.data.images import decode, index
from torusrun.training.data.images.stored import Stored
from torusrun.training.recipe.reading import ConfigError

KIND = "sizes"
HEAD_BYTES = 1 << 15


class Sizes:
    """(width, height) of every image, from the headers; measured, or read from the index, at the first use.

    They do not change after that, because each rank takes its share of the images by them.
    """

    def __init__(self, stored: Stored) -> None:
        self._stored = stored
        self._found: list[tuple[int, int]] = []

    def measured(self, threads: Executor) -> list[tuple[int, int]]:
        """All sizes."""
        if not self._found:
            stored = self._stored
            kept = index.kept(KIND, stored.root, stored.stamps, lambda: _measured(stored, threads))
            self._found = list(zip(kept.numbers["width"], kept.numbers["height"], strict=True))
        return self._found

    def check(self, sample: int, width: int, height: int) -> None:
        """Raises ConfigError, and drops the index, if the image's measured size differs from this one."""
        if not self._found or self._found[sample] == (width, height):
            return
        index.forget(KIND, self._stored.root)
        was = "{} x {} pixels".format(*self._found[sample])
        raise ConfigError(
            f"train.data.options.root: {self._stored.name(sample)} is {width} x {height} pixels and was {was} when it "
            "was measured for 'rectangular'; the list of sizes is removed: resume the run, which measures them again"
        )


def _measured(stored: Stored, threads: Executor) -> index.Index:
    sizes = list(threads.map(partial(_size, stored), range(len(stored))))
    width, height = (array("I", column) for column in zip(*sizes, strict=True))
    return index.Index(numbers={"width": width, "height": height})


def _size(stored: Stored, sample: int) -> tuple[int, int]:
    """The size of an image; (1, 1) for other data, which is left out when it is decoded."""
    for most in (HEAD_BYTES, -1):
        try:
            return decode.size_of(stored.read(sample, most))
        except decode.Corrupt:
            continue
    return 1, 1
