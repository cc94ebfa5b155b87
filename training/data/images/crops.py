"""The part of an image that a sample shows: pure functions of (seed, epoch, sample) and of the image's size.

Boxes are (left, top, right, bottom) in pixels of the stored image. Sizes are (width, height) unless they say otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from torusrun.training.data.view import View

TRIES = 10

Draw = Callable[[], float]
"""A random number from 0 to 1, without 1."""


class Box(NamedTuple):
    """A part of an image."""

    left: float
    top: float
    right: float
    bottom: float


def draws(seed: int, epoch: int, sample: int) -> Draw:
    """The random numbers of a sample in an epoch: the same in every Python, on every rank."""
    return Random(f"crop/{seed}/{epoch}/{sample}").random


def train_box(width: int, height: int, view: View, size: int, draw: Draw) -> Box:
    """The box of a training image: a random crop by area and aspect or, without `augment`, only by position."""
    if view.augment:
        return random_crop(width, height, view.area, view.aspect, draw)
    return random_place(width, height, size, view.test_margin, draw)


def random_crop(width: int, height: int, area: tuple[float, float], aspect: tuple[float, float], draw: Draw) -> Box:
    """A crop of random area (uniform) and aspect ratio (uniform in its logarithm), at a random place.

    The rule of torchvision.transforms.RandomResizedCrop.get_params: ten tries to find a crop that fits, then the
    largest crop in the middle with an aspect ratio in the range.
    """
    low, high = math.log(aspect[0]), math.log(aspect[1])
    for _ in range(TRIES):
        wanted = width * height * (area[0] + (area[1] - area[0]) * draw())
        ratio = math.exp(low + (high - low) * draw())
        wide, tall = round(math.sqrt(wanted * ratio)), round(math.sqrt(wanted / ratio))
        if 0 < wide <= width and 0 < tall <= height:
            top, left = int(draw() * (height - tall + 1)), int(draw() * (width - wide + 1))
            return Box(left, top, left + wide, top + tall)
    return _largest_in_the_middle(width, height, aspect)


def random_place(width: int, height: int, size: int, margin: float, draw: Draw) -> Box:
    """A square at a random place, as large as the middle square of a test image with this `margin`.

    So the scale is fixed and the aspect ratio kept, as in the collapse of SURFsara's solvers: only crop and mirror.
    """
    side = min(width, height) * size / int(size * margin)
    top, left = draw() * (height - side), draw() * (width - side)
    return Box(left, top, left + side, top + side)


def _largest_in_the_middle(width: int, height: int, aspect: tuple[float, float]) -> Box:
    wide, tall = width, height
    if width / height < aspect[0]:
        tall = max(round(width / aspect[0]), 1)
    elif width / height > aspect[1]:
        wide = max(round(height * aspect[1]), 1)
    left, top = (width - wide) // 2, (height - tall) // 2
    return Box(left, top, left + wide, top + tall)
