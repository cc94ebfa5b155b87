"""Random changes of colours: brightness, then contrast, then saturation, by torchvision's formulas.

changed = clip(factor pixel + (1 - factor) other),  other: black, the mean grey of the image, the pixel's grey
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np

BRIGHTEST = 255.0
GREY = np.array([0.299, 0.587, 0.114], dtype=np.float32)  # ITU-R 601, as Pillow converts

Pixels = Any
"""A numpy array [..., channels, height, width] of float32, from 0 to 255."""


def factors(seed: int, epoch: int, sample: int, reach: float) -> list[float]:
    """The three factors of a sample, each from 1 - reach to 1 + reach."""
    draw = Random(f"colour/{seed}/{epoch}/{sample}").random
    return [1 + reach * (2 * draw() - 1) for _ in range(3)]


def changed(pixels: Pixels, by: Sequence[Any]) -> Pixels:
    """The pixels changed `by` three factors, each a number or [..., 1, 1, 1]. Grey images have no saturation."""
    brightness, contrast, saturation = by
    pixels = _blended(pixels, np.float32(0), brightness)
    pixels = _blended(pixels, _grey(pixels).mean((-3, -2, -1), keepdims=True), contrast)
    return _blended(pixels, _grey(pixels), saturation) if pixels.shape[-3] == len(GREY) else pixels


def _blended(pixels: Pixels, other: Pixels, factor: Any) -> Pixels:
    factor = np.float32(factor)
    return np.clip(factor * pixels + (1 - factor) * other, 0, BRIGHTEST)


def _grey(pixels: Pixels) -> Pixels:
    """[..., 1, height, width]."""
    if pixels.shape[-3] != len(GREY):
        return pixels
    return (pixels * GREY[:, None, None]).sum(-3, keepdims=True)
