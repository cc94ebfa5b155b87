"""The sizes of test images, measured once and kept in the index; a file that has another size since is an error.

Nobody asks a hundred thousand files for their times: an image's size is compared when it is decoded.
"""

from __future__ import annotations

from array import array
from concurrent.futures import Executor
from functools import partial

from training.data.images import decode, index
from training.data.images.stored import Stored
from training.recipe.reading import ConfigError

KIND = "sizes"
HEAD_BYTES = 1 << 15


class Sizes:
    """(width, height) of every image, by the headers; measured, or read from the index, when they are first asked for.

    They stay as they are then: each rank takes its share of the images by them.
    """

    def __init__(self, stored: Stored) -> None:
        self._stored = stored
        self._found: list[tuple[int, int]] = []

    def measured(self, threads: Executor) -> list[tuple[int, int]]:
        """All of them."""
        if not self._found:
            stored = self._stored
            kept = index.kept(KIND, stored.root, stored.stamps, lambda: _measured(stored, threads))
            self._found = list(zip(kept.numbers["width"], kept.numbers["height"], strict=True))
        return self._found

    def check(self, sample: int, width: int, height: int) -> None:
        """Raises ConfigError, and forgets the index, where an image was measured that had another size than this."""
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
    """(1, 1) for what is no image: it is left out when it is decoded."""
    for most in (HEAD_BYTES, -1):
        try:
            return decode.size_of(stored.read(sample, most))
        except decode.Corrupt:
            continue
    return 1, 1
