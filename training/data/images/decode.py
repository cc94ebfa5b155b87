"""The part of an image that a sample shows, decoded from a file's bytes into pixels.

Parts are pure functions of (seed, epoch, sample) and of the image's size. Boxes are (left, top, right, bottom), in
pixels of the stored image. Sizes are (width, height) unless they say otherwise.

Test images: the middle of each, as a square, or as a rectangle near its own aspect ratio. The rule is that of fast.ai's
18 minutes (diux-dev/imagenet18, 2018): the short side becomes int(size * margin) pixels, with a margin of 1.14, or of
256 / 224 in MLPerf. Then the middle is cut: size x size, or a rectangle with the mean aspect ratio of the batch and a
longer side that is a multiple of 8. Ratios beyond WIDEST count as WIDEST; fast.ai's rule has no such limit.

Pillow decodes: torchvision's result, in fewer steps.

If fewer pixels are wanted, a training JPEG is decoded at a half, quarter or eighth of its size (Image.draft), never
smaller than wanted; `draft` switches that off. Pillow releases the interpreter's lock while it decodes and resizes.
Without draft the pixels are those of torchvision, up to rounding; but the outermost pixels of a crop also depend on
their neighbours outside it.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, UnidentifiedImageError
from PIL.BmpImagePlugin import BmpImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.PpmImagePlugin import PpmImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from torusrun.training.data.view import View
from torusrun.training.recipe.reading import ConfigError

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


WIDEST = 4.0  # wider than ordinary photographs; an image of 60,000 x 1 pixels would make its whole batch as long


class Cut(NamedTuple):
    """Samples that are tested together, and their size after the cut."""

    samples: list[int]
    width: int
    height: int


class Middle(NamedTuple):
    """The part `box` of a stored image, as `width` x `height` pixels of the picture; the rest of that is black."""

    box: Box
    width: int
    height: int


def squares(samples: int, size: int, batch: int) -> list[Cut]:
    """All samples in their order, cut to size x size."""
    return [Cut(list(range(n, min(n + batch, samples))), size, size) for n in range(0, samples, batch)]


def rectangles(sizes: Sequence[tuple[int, int]], size: int, batch: int) -> list[Cut]:
    """All samples by aspect ratio, cut to the mean aspect ratio of their batch; `sizes` are those of the images.

    The cut of a sample does not depend on the number of ranks.
    """
    ratios = [width / height for width, height in sizes]
    order = sorted(range(len(sizes)), key=lambda sample: (ratios[sample], sample))
    counted = [min(max(ratio, 1 / WIDEST), WIDEST) for ratio in ratios]
    chunks = [order[n : n + batch] for n in range(0, len(order), batch)]
    return [Cut(chunk, *_cut(sum(counted[sample] for sample in chunk) / len(chunk), size)) for chunk in chunks]


def of_rank(batches: Sequence[Cut], rank: int, world: int) -> Iterator[Cut]:
    """A rank's contiguous part of the samples: it may begin and end within a batch, or be empty."""
    samples = sum(len(batch.samples) for batch in batches)
    first, last = rank * samples // world, (rank + 1) * samples // world
    at = 0
    for batch in batches:
        mine = batch.samples[max(first - at, 0) : max(last - at, 0)]
        at += len(batch.samples)
        if mine:
            yield batch._replace(samples=mine)


def middle(width: int, height: int, cut: Cut, size: int, margin: float) -> Middle:
    """The part of a stored image that remains after the cut of its batch."""
    short = int(size * margin)
    whole = (short, int(short * height / width)) if width <= height else (int(short * width / height), short)
    wide, tall = min(cut.width, whole[0]), min(cut.height, whole[1])
    left, top = round((whole[0] - wide) / 2), round((whole[1] - tall) / 2)
    across, down = width / whole[0], height / whole[1]
    return Middle(Box(left * across, top * down, (left + wide) * across, (top + tall) * down), wide, tall)


def _cut(ratio: float, size: int) -> tuple[int, int]:
    """(width, height) with the aspect ratio `ratio`."""
    if ratio < 1:
        return size, max(int(size / ratio) // 8 * 8, 8)
    return max(int(size * ratio) // 8 * 8, 8), size


# Loaded before the first thread decodes: Pillow imports formats when it needs them, and threads could miss some.
FORMATS = [
    each.format for each in (JpegImageFile, PngImageFile, PpmImageFile, BmpImageFile, WebPImageFile, TiffImageFile)
]

DEEP = ("I", "F")  # modes with grey levels that Pillow cuts off at 255: an image of 16 bits would be white

Pixels = Any
"""A numpy array [3, height, width] of bytes."""


class Corrupt(Exception):
    """These bytes are not a complete image. A MemoryError says nothing about them, and is raised unchanged."""


@contextmanager
def _judging() -> Iterator[None]:
    """Turns the errors of Pillow's readers, which have many classes, into Corrupt."""
    try:
        yield
    except (ConfigError, MemoryError, Corrupt):
        raise
    except Exception as error:
        unknown = isinstance(error, UnidentifiedImageError)
        why = "not an image" if unknown else f"{error}".partition("\n")[0] or type(error).__name__
        raise Corrupt(why) from None


def size_of(data: bytes) -> tuple[int, int]:
    """(width, height), from only the header. Raises Corrupt."""
    with _judging(), Image.open(io.BytesIO(data), formats=FORMATS) as image:
        width, height = image.size
        return width, height


def train_pixels(data: bytes, box_of: Callable[[int, int], Box], flip: bool, draft: bool, into: Pixels) -> None:
    """Write the part `box_of(width, height)` of an image into `into`, scaled to its size. Raises Corrupt."""
    height, width = into.shape[1:]
    with _judging():
        image = _part(data, lambda w, h: (box_of(w, h), width, height), draft)
    pixels = np.asarray(image)[:, ::-1] if flip else np.asarray(image)
    into[...] = pixels.transpose(2, 0, 1)


def test_pixels(data: bytes, middle_of: Callable[[int, int], Middle], into: Pixels) -> None:
    """Write the middle of an image, at its scale, into the middle of `into`, with black around it.

    Raises Corrupt, or a ConfigError of `middle_of`.
    """
    height, width = into.shape[1:]
    with _judging():
        image = _part(data, middle_of, draft=False)
    if image.size != (width, height):
        seen, image = image, Image.new("RGB", (width, height))
        image.paste(seen, ((width - seen.width) // 2, (height - seen.height) // 2))
    into[...] = np.asarray(image).transpose(2, 0, 1)


def _part(data: bytes, place_of: Callable[[int, int], tuple[Box, int, int]], draft: bool) -> Image.Image:
    with Image.open(io.BytesIO(data), formats=FORMATS) as image:
        if image.mode.startswith(DEEP):
            raise Corrupt(f"it has more than 8 bits for a grey level (mode {image.mode}); convert it to 8")
        whole = image.size
        box, width, height = place_of(*whole)
        across, down = width / (box.right - box.left), height / (box.bottom - box.top)
        if draft:
            image.draft("RGB", (math.ceil(whole[0] * across), math.ceil(whole[1] * down)))
        pixels = image if image.mode == "RGB" else image.convert("RGB")
        scale = pixels.width / whole[0], pixels.height / whole[1]  # the size is known before the image is decoded
        right, bottom = min(box.right * scale[0], pixels.width), min(box.bottom * scale[1], pixels.height)
        seen = (max(box.left, 0) * scale[0], max(box.top, 0) * scale[1], right, bottom)
        resized: Image.Image = pixels.resize((width, height), Image.Resampling.BILINEAR, box=seen)
    return resized
