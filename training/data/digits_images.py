"""The digits as tensors, read from the file that scikit-learn ships."""

from __future__ import annotations

import gzip
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from training.data.digits import FACTS
from training.data.order import permutation, shifts

SHIFT_PIXELS = 1
BRIGHTEST = 16.0


class Digits:
    """A fixed split, the same for every seed: 1437 images to train on and 360 to test on.

    Images are [N, 1, 8, 8] with mean 0 and standard deviation 1 over the training half, labels [N].
    """

    classes, shape = FACTS.classes, FACTS.shape
    train_samples, test_samples = FACTS.train_samples, FACTS.test_samples

    def __init__(self, seed: int) -> None:
        images, labels = _load()
        self._seed = seed
        self._train_labels, self._test_labels = labels[: FACTS.train_samples], labels[FACTS.train_samples :]
        mean, deviation = images[: FACTS.train_samples].mean(), images[: FACTS.train_samples].std()
        self._test_images = (images[FACTS.train_samples :] - mean) / deviation
        padded = torch.nn.functional.pad(images[: FACTS.train_samples], [SHIFT_PIXELS] * 4)
        normal = (padded - mean) / deviation
        self._windows = normal[:, 0].unfold(1, 8, 1).unfold(2, 8, 1)

    def train_batch(self, samples: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
        """Images [B, 1, 8, 8], each moved by up to one pixel, and labels [B] of (epoch, sample) pairs."""
        index = torch.tensor([sample for _, sample in samples])
        moves = torch.tensor([shifts(FACTS.train_samples, self._seed, epoch, SHIFT_PIXELS)[i] for epoch, i in samples])
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
