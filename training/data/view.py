"""The view of a data set's images: their size and their random changes. Phases change it."""

from __future__ import annotations

from typing import NamedTuple

from torusrun.training.recipe.train import AREA, ASPECT, MARGIN, DataKeys


class View(NamedTuple):
    """`size` and `test_size` are sides in pixels, None for the data set's own.

    `area` and `aspect` (width / height) are the ranges of random crops. Without `augment` training images change as
    little as the data set allows. `rectangular` test images keep their aspect ratio. The part of a test image that is
    tested is `test_margin` times smaller than its short side.
    """

    size: int | None = None
    test_size: int | None = None
    area: tuple[float, float] = AREA
    aspect: tuple[float, float] = ASPECT
    augment: bool = True
    rectangular: bool = False
    test_margin: float = MARGIN

    def changed(self) -> list[str]:
        """The names of the values that differ from the default."""
        return [name for name, value, default in zip(self._fields, self, View(), strict=True) if value != default]


def view_of(data: DataKeys) -> View:
    """The view from the keys of `train.data`."""
    return View(*(getattr(data, name) for name in View._fields))
