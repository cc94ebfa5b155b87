"""Decodes a file's bytes into pixels by Pillow: torchvision's result, in fewer steps.

If fewer pixels are wanted, a training JPEG is decoded at a half, quarter or eighth of its size (Image.draft), never
smaller than wanted; `draft` switches that off. Pillow releases the interpreter's lock while it decodes and resizes.
Without draft the pixels are those of torchvision, up to rounding; but the outermost pixels of a crop also depend on
their neighbours outside it.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, UnidentifiedImageError
from PIL.BmpImagePlugin import BmpImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.PpmImagePlugin import PpmImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from torusrun.training.data.images.crops import Box
from torusrun.training.recipe.reading import ConfigError

if TYPE_CHECKING:
    from torusrun.training.data.images.crops import Middle

# Loaded before the first thread decodes: Pillow imports formats when it needs them, and threads could miss some.
FORMATS = [
    each.format for each in (JpegImageFile, PngImageFile, PpmImageFile, BmpImageFile, WebPImageFile, TiffImageFile)
]

DEEP = ("I", "F")  # modes with grey levels that Pillow cuts off at 255: an image of 16 bits would be white

Pixels = Any
"""A numpy array [3, height, width] of bytes."""


class Corrupt(Exception):
    """These bytes are not a complete image. A MemoryError says nothing about them, and is raised unchanged."""


def size_of(data: bytes) -> tuple[int, int]:
    """(width, height), from only the header. Raises Corrupt."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            width, height = image.size
            return width, height
    except MemoryError:
        raise
    except Exception as error:  # Pillow's readers raise errors of many classes
        raise Corrupt(_why(error)) from None


def train_pixels(
    data: bytes,
    box_of: Callable[[int, int], Box],
    flip: bool,
    draft: bool,
    into: Pixels,
) -> None:
    """Write the part `box_of(width, height)` of an image into `into`, scaled to its size. Raises Corrupt."""
    height, width = into.shape[1:]
    try:
        image = _part(data, lambda w, h: (box_of(w, h), width, height), draft)
    except MemoryError:
        raise
    except Exception as error:
        raise Corrupt(_why(error)) from None
    pixels = np.asarray(image)[:, ::-1] if flip else np.asarray(image)
    into[...] = pixels.transpose(2, 0, 1)


def test_pixels(data: bytes, middle_of: Callable[[int, int], Middle], into: Pixels) -> None:
    """Write the middle of an image, at its scale, into the middle of `into`, with black around it.

    Raises Corrupt, or a ConfigError of `middle_of`.
    """
    height, width = into.shape[1:]
    try:
        image = _part(data, middle_of, draft=False)
    except (ConfigError, MemoryError):
        raise
    except Exception as error:
        raise Corrupt(_why(error)) from None
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


def _why(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    return f"{error}".splitlines()[0] if f"{error}" else type(error).__name__
