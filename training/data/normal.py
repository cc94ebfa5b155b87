"""Pixels as numbers of the network, with mean 0 and deviation 1: computed on the device, so that bytes travel to it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

BRIGHTEST = 255.0
# Mean and deviation of ImageNet's training images, from 0 to 1: red, green, blue.
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Normal:
    """(pixel - mean) / deviation for each channel; `mean` and `deviation` are those of pixels from 0 to 1."""

    def __init__(self, mean: Sequence[float], deviation: Sequence[float]) -> None:
        both = torch.tensor([list(mean), list(deviation)], dtype=torch.float32) * BRIGHTEST
        self._at: dict[torch.device, Tensor] = {both.device: both[:, :, None, None]}

    def __call__(self, pixels: Tensor) -> Tensor:
        """Pixels [B, channels, height, width] from 0 to 255, bytes or float32, as float32; the host does not wait."""
        mean, deviation = self._on(pixels.device)
        centred: Tensor = pixels - mean
        return centred.div_(deviation)

    def _on(self, device: torch.device) -> Tensor:
        if device not in self._at:
            (here,) = self._at.values()
            self._at = {**self._at, device: here.pin_memory().to(device, non_blocking=True)}
        return self._at[device]
