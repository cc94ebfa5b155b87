"""The digits as tensors, read from the file that scikit-learn ships."""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from training.data.order import permutation, shifts
from training.recipe.facts import DataFacts

SHIFT_PIXELS = 1
BRIGHTEST = 16.0


class Digits:
    """A split by the sizes in `facts`, the same for every seed, into images to train on and images to test on.

    Images are [N, 1, 8, 8] with mean 0 and standard deviation 1 over the training half, labels [N].
    """

    def __init__(self, facts: DataFacts, seed: int) -> None:
        self.classes, self.shape = facts.classes, facts.shape
        self.train_samples, self.test_samples = facts.train_samples, facts.test_samples
        images, labels = _load()
        self._seed = seed
        self._train_labels, self._test_labels = labels[: self.train_samples], labels[self.train_samples :]
        mean, deviation = images[: self.train_samples].mean(), images[: self.train_samples].std()
        self._test_images = (images[self.train_samples :] - mean) / deviation
        padded = torch.nn.functional.pad(images[: self.train_samples], [SHIFT_PIXELS] * 4)
        normal = (padded - mean) / deviation
        self._windows = normal[:, 0].unfold(1, 8, 1).unfold(2, 8, 1)

    def train_batch(self, samples: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
        """Images [B, 1, 8, 8], each moved by up to one pixel, and labels [B] of (epoch, sample) pairs."""
        index = torch.tensor([sample for _, sample in samples])
        moves = torch.tensor([shifts(self.train_samples, self._seed, epoch, SHIFT_PIXELS)[i] for epoch, i in samples])
        return self._windows[index, moves[:, 0], moves[:, 1]].unsqueeze(1), self._train_labels[index]

    def test_shard(self, rank: int, world: int) -> tuple[Tensor, Tensor]:
        """Every `world`-th test image from `rank` on, and its label."""
        return self._test_images[rank::world], self._test_labels[rank::world]


def _load() -> tuple[Tensor, Tensor]:
    """Images [1797, 1, 8, 8] from 0 to 1 and labels [1797], shuffled the same way always."""
    with gzip.open(_file(), "rt") as file:
        rows = torch.tensor([[float(value) for value in line.split(",")] for line in file])
    rows = rows[list(permutation(len(rows), "digits split"))]
    return rows[:, :64].reshape(-1, 1, 8, 8) / BRIGHTEST, rows[:, 64].long()


def _file() -> Path:
    """Where scikit-learn keeps the digits; importing it to ask would cost every rank a second of start-up."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("the digits come with scikit-learn, which is not installed: pip install scikit-learn")
    return Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
