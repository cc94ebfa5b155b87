"""The digits as tensors, read from the file that scikit-learn ships."""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from torusrun.training.data.order import permutation, shifts
from torusrun.training.data.view import View
from torusrun.training.recipe.facts import DataFacts

SHIFT_PIXELS = 1
BRIGHTEST = 16.0


class Digits:
    """The digits, split by the sizes in `facts` into training and test images; the split is the same for every seed.

    Images are [N, 1, 8, 8] with mean 0 and standard deviation 1 over the training half, labels [N]. A view of another
    size stretches them; its area and aspect have no effect, because digits are moved and not cropped.
    """

    def __init__(self, facts: DataFacts, seed: int) -> None:
        self.classes, self._own_shape = facts.classes, facts.shape
        self.train_samples, self.test_samples = facts.train_samples, facts.test_samples
        images, labels = _load()
        self._seed = seed
        self._train_labels, self._test_labels = labels[: self.train_samples], labels[self.train_samples :]
        mean, deviation = images[: self.train_samples].mean(), images[: self.train_samples].std()
        self._test_images = (images[self.train_samples :] - mean) / deviation
        padded = torch.nn.functional.pad(images[: self.train_samples], [SHIFT_PIXELS] * 4)
        normal = (padded - mean) / deviation
        self._windows = normal[:, 0].unfold(1, 8, 1).unfold(2, 8, 1)
        self.look(View())

    def look(self, view: View) -> None:
        """From the next batch on, images have the view's sizes, and are moved if it has `augment`."""
        self._view = view
        self.shape = (1, view.size, view.size) if view.size else self._own_shape

    def train_batch(self, samples: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
        """Images [B, 1, size, size], each moved by up to one pixel, and labels [B] of (epoch, sample) pairs."""
        index = torch.tensor([sample for _, sample in samples])
        moves = torch.tensor([self._move(epoch, sample) for epoch, sample in samples])
        images = self._windows[index, moves[:, 0], moves[:, 1]].unsqueeze(1)
        return _stretched(images, self._view.size), self._train_labels[index]

    def test_shard(self, rank: int, world: int) -> tuple[Tensor, Tensor]:
        """Every `world`-th test image from `rank` on, and its label."""
        images, size = self._test_images[rank::world], self._view.test_size or self._view.size
        return _stretched(images, size), self._test_labels[rank::world]

    def _move(self, epoch: int, sample: int) -> tuple[int, int]:
        if not self._view.augment:
            return SHIFT_PIXELS, SHIFT_PIXELS
        return shifts(self.train_samples, self._seed, epoch, SHIFT_PIXELS)[sample]


def _stretched(images: Tensor, size: int | None) -> Tensor:
    if size is None or size == images.shape[-1] or not len(images):
        return images
    return torch.nn.functional.interpolate(images, size=(size, size), mode="bilinear", align_corners=False)


def _load() -> tuple[Tensor, Tensor]:
    """Images [1797, 1, 8, 8] from 0 to 1 and labels [1797], always shuffled in the same way."""
    with gzip.open(_file(), "rt") as file:
        rows = torch.tensor([[float(value) for value in line.split(",")] for line in file])
    rows = rows[list(permutation(len(rows), "digits split"))]
    return rows[:, :64].reshape(-1, 1, 8, 8) / BRIGHTEST, rows[:, 64].long()


def _file() -> Path:
    """The file of scikit-learn with the digits. Importing scikit-learn to find it would cost every rank a second."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("the digits come with scikit-learn, which is not installed: pip install scikit-learn")
    return Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
