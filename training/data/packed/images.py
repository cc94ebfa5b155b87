"""The images of a packed data set as tensors. The file is mapped: the ranks of a node share its pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from torusrun.training.data.normal import Normal
from torusrun.training.data.order import draws
from torusrun.training.data.packed.sources import Source
from torusrun.training.data.view import View

TEST_BATCH = 500


class PackedImages:
    """Images [B, channels, size, size] in bytes, and labels [B].

    After `normalize_on_device` they have mean 0 and deviation 1 over the training half. Images in another size are
    float32.
    A training image is a function of (seed, epoch, sample) and the view. With `augment` it is moved by up to the
    source's `reach` of pixels, with black around it, and mirrored if the source says so. Area and aspect are not used.
    """

    def __init__(self, source: Source, path: Path, begins: int, seed: int) -> None:
        facts, self._source, self._seed = source.facts, source, seed
        self.train_samples, self.test_samples, self.classes = facts.train_samples, facts.test_samples, facts.classes
        self.identity = source.content_sha256
        self._halves, at = list[tuple[Tensor, Tensor]](), begins
        for count in (facts.train_samples, facts.test_samples):
            images, at = _mapped(path, at, (count, *facts.shape))
            labels, at = _mapped(path, at, (count,))
            self._halves.append((images, labels))
        self.normalize_on_device = Normal(source.mean, source.deviation)
        self.look(View())

    def look(self, view: View) -> None:
        """From the next batch on, images have the view's sizes, and are changed if it has `augment`."""
        channels, own, _ = self._source.facts.shape
        self._view, side = view, view.size or own
        self.shape = (channels, side, side)

    def train_batch(self, samples: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
        """Images and labels of (epoch, sample) pairs."""
        index = torch.tensor([sample for _, sample in samples])
        images, labels = (each[index] for each in self._halves[0])
        if self._view.augment:
            images = self._changed(images, np.stack([self._draws(epoch)[sample] for epoch, sample in samples]))
        return _in_size(images, self._view.size), labels.long()

    def test_batches(self, rank: int, world: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Every `world`-th test image from `rank` on, 500 at a time."""
        images, labels = (each[rank::world] for each in self._halves[1])
        size = self._view.test_size or self._view.size
        for some, theirs in zip(torch.split(images, TEST_BATCH), torch.split(labels, TEST_BATCH), strict=True):
            yield _in_size(some, size), theirs.long()

    def _draws(self, epoch: int) -> np.ndarray:
        return draws(self.train_samples, f"changes/{self._seed}/{epoch}", 3)

    def _changed(self, images: Tensor, drawn: np.ndarray) -> Tensor:
        """The images moved and mirrored; `drawn` [B, 3] are random numbers from 0 to 1."""
        reach, (height, width) = self._source.reach, images.shape[2:]
        moves = torch.from_numpy((drawn[:, :2] * (2 * reach + 1)).astype(np.int64))
        windows = functional.pad(images, [reach] * 4).unfold(2, height, 1).unfold(3, width, 1)
        moved = windows[torch.arange(len(images)), :, moves[:, 0], moves[:, 1]]
        if not self._source.mirrored:
            return moved
        mirrored = torch.from_numpy(drawn[:, 2] < 0.5)
        return torch.where(mirrored[:, None, None, None], moved.flip(3), moved)


def _in_size(images: Tensor, size: int | None) -> Tensor:
    """The images in another size if one is given: bilinear, smoothed before it shrinks."""
    if size is None or size == images.shape[-1] or not len(images):
        return images
    return functional.interpolate(images.float(), (size, size), mode="bilinear", antialias=True)


def _mapped(path: Path, at: int, shape: tuple[int, ...]) -> tuple[Tensor, int]:
    """Bytes of the file from `at` on, as a tensor that nobody writes to, and where they end."""
    mapped = np.memmap(path, dtype=np.uint8, mode="c", offset=at, shape=shape)
    return torch.from_numpy(mapped), at + mapped.size
