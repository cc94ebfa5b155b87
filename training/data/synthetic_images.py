"""Random images as tensors: a few images, and each sample is one of them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch

from torusrun.training.data.images.ahead import Ahead, Batch, Samples
from torusrun.training.data.images.stored import SIDE
from torusrun.training.data.normal import BRIGHTEST, Normal
from torusrun.training.data.view import View

DISTINCT = 64
MIDDLE, DEVIATION = 0.5, 0.25  # of pixels from 0 to 1
SPREAD = 2_654_435_761  # Knuth's multiplier: labels of neighbours differ


class RandomImages:
    """Images [B, channels, size, size] in bytes, functions of (seed, sample % 64), and labels [B].

    After `normalize_on_device` they are normal random numbers, rounded and cut off at 2: mean 0, deviation 0.96.
    """

    def __init__(self, seed: int, samples: int, test_samples: int, classes: int, channels: int) -> None:
        self.train_samples, self.test_samples, self.classes = samples, test_samples, classes
        self._channels, self.normalize_on_device = channels, Normal([MIDDLE] * channels, [DEVIATION] * channels)
        self._seed, self._thread = seed, ThreadPoolExecutor(1, thread_name_prefix="synthetic")
        self._ahead, self._kept = Ahead(self._start), dict[int, np.ndarray]()
        self.look(View())

    def look(self, view: View) -> None:
        """From the next batch on, images have the view's sizes."""
        self._ahead.drop()
        size = view.size or SIDE
        self.shape = (self._channels, size, size)
        self._size, self._test_size = size, view.test_size or size
        self._kept = {each: images for each, images in self._kept.items() if each in (size, self._test_size)}

    def prefetch(self, samples: Samples) -> None:
        """Begin to collect these samples."""
        self._ahead.expect(samples)

    def train_batch(self, samples: Samples) -> Batch:
        """Images and labels of (epoch, sample) pairs."""
        return self._ahead.take(samples)

    def test_batches(self, rank: int, world: int) -> Iterator[Batch]:
        """Every `world`-th test sample from `rank` on, 64 at a time: a thousand photographs take 600 MB."""
        mine = range(rank, self.test_samples, world)
        for first in range(0, len(mine), DISTINCT):
            yield self._collected(self._drawn(self._test_size), list(mine[first : first + DISTINCT]))

    def _start(self, samples: Samples) -> Future[Batch]:
        return self._thread.submit(self._collected, self._drawn(self._size), [sample for _, sample in samples])

    def _collected(self, images: np.ndarray, samples: list[int]) -> Batch:
        index = np.array(samples, dtype=np.int64)
        return torch.from_numpy(images[index % DISTINCT]), torch.from_numpy(index * SPREAD % 2**32 % self.classes)

    def _drawn(self, size: int) -> np.ndarray:
        """The images in a size; kept while the view has it."""
        if size not in self._kept:
            self._kept[size] = self._new(size)
        return self._kept[size]

    def _new(self, size: int) -> np.ndarray:
        generator = torch.Generator().manual_seed(self._seed)
        numbers = torch.randn(DISTINCT, self._channels, size, size, generator=generator)
        pixels = numbers.mul_(DEVIATION).add_(MIDDLE).mul_(BRIGHTEST).round_().clamp_(0, BRIGHTEST)
        return pixels.to(torch.uint8).numpy()
