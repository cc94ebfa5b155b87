"""Random images as tensors: a few images, and each sample is one of them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch

from training.data.images.ahead import Ahead, Batch, Samples
from training.data.images.image_options import SIDE
from training.data.view import View

DISTINCT = 64
SPREAD = 2_654_435_761  # Knuth's multiplier: labels of neighbours differ


class RandomImages:
    """Images [B, channels, size, size] of normal random numbers, functions of (seed, sample % 64), and labels [B]."""

    def __init__(self, seed: int, samples: int, test_samples: int, classes: int, channels: int) -> None:
        self.train_samples, self.test_samples, self.classes = samples, test_samples, classes
        self._channels = channels
        self._seed, self._thread = seed, ThreadPoolExecutor(1, thread_name_prefix="synthetic")
        self._ahead = Ahead(self._start)
        self.look(View())

    def look(self, view: View) -> None:
        """From the next batch on, images have the view's sizes."""
        self._ahead.drop()
        size = view.size or SIDE
        self.shape = (self._channels, size, size)
        self._images, self._test_images = self._drawn(size), self._drawn(view.test_size or size)

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
            yield self._collected(self._test_images, list(mine[first : first + DISTINCT]))

    def _start(self, samples: Samples) -> Future[Batch]:
        return self._thread.submit(self._collected, self._images, [sample for _, sample in samples])

    def _collected(self, images: np.ndarray, samples: list[int]) -> Batch:
        index = np.array(samples, dtype=np.int64)
        return torch.from_numpy(images[index % DISTINCT]), torch.from_numpy(index * SPREAD % 2**32 % self.classes)

    def _drawn(self, size: int) -> np.ndarray:
        generator = torch.Generator().manual_seed(self._seed)
        return torch.randn(DISTINCT, self._channels, size, size, generator=generator).numpy()
