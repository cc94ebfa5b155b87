"""The images of data sets without a folder of them, as tensors: digits, random images, and those of packed files."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from torusrun.training.data.images.ahead import Ahead, Batch, Samples
from torusrun.training.data.images.stored import SIDE
from torusrun.training.data.normal import BRIGHTEST, Normal
from torusrun.training.data.order import draws, permutation, shifts
from torusrun.training.data.packed_file import Source
from torusrun.training.data.view import View
from torusrun.training.recipe.facts import DataFacts

SHIFT_PIXELS = 1
DARKEST_INK = 16.0


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
        padded = functional.pad(images[: self.train_samples], [SHIFT_PIXELS] * 4)
        normal = (padded - mean) / deviation
        self._windows = normal[:, 0].unfold(1, 8, 1).unfold(2, 8, 1)
        self.look(View())

    def look(self, view: View) -> None:
        self._view = view
        self.shape = (1, view.size, view.size) if view.size else self._own_shape

    def train_batch(self, samples: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
        """Images [B, 1, size, size], each moved by up to one pixel, and labels [B] of (epoch, sample) pairs."""
        index = torch.tensor([sample for _, sample in samples])
        moves = torch.tensor([self._move(epoch, sample) for epoch, sample in samples])
        images = self._windows[index, moves[:, 0], moves[:, 1]].unsqueeze(1)
        return _stretched(images, self._view.size), self._train_labels[index]

    def test_shard(self, rank: int, world: int) -> tuple[Tensor, Tensor]:
        images, size = self._test_images[rank::world], self._view.test_size or self._view.size
        return _stretched(images, size), self._test_labels[rank::world]

    def _move(self, epoch: int, sample: int) -> tuple[int, int]:
        if not self._view.augment:
            return SHIFT_PIXELS, SHIFT_PIXELS
        return shifts(self.train_samples, self._seed, epoch, SHIFT_PIXELS)[sample]


def _stretched(images: Tensor, size: int | None) -> Tensor:
    if size is None or size == images.shape[-1] or not len(images):
        return images
    return functional.interpolate(images, size=(size, size), mode="bilinear", align_corners=False)


def _load() -> tuple[Tensor, Tensor]:
    """Images [1797, 1, 8, 8] from 0 to 1 and labels [1797], always shuffled in the same way."""
    with gzip.open(_file(), "rt") as file:
        rows = torch.tensor([[float(value) for value in line.split(",")] for line in file])
    rows = rows[list(permutation(len(rows), "digits split"))]
    return rows[:, :64].reshape(-1, 1, 8, 8) / DARKEST_INK, rows[:, 64].long()


def _file() -> Path:
    """The file of scikit-learn with the digits. Importing scikit-learn to find it would cost every rank a second."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("the digits come with scikit-learn, which is not installed: pip install scikit-learn")
    return Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"


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
        self._ahead.drop()
        size = view.size or SIDE
        self.shape = (self._channels, size, size)
        self._size, self._test_size = size, view.test_size or size
        self._kept = {each: images for each, images in self._kept.items() if each in (size, self._test_size)}

    def prefetch(self, samples: Samples) -> None:
        self._ahead.expect(samples)

    def train_batch(self, samples: Samples) -> Batch:
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


TEST_BATCH = 500


class PackedImages:
    """Images [B, channels, size, size] in bytes, and labels [B]. The file is mapped: a node's ranks share its pages.

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
        channels, own, _ = self._source.facts.shape
        self._view, side = view, view.size or own
        self.shape = (channels, side, side)

    def train_batch(self, samples: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
        index = torch.tensor([sample for _, sample in samples])
        images, labels = (each[index] for each in self._halves[0])
        if self._view.augment:
            drawn = [draws(self.train_samples, f"changes/{self._seed}/{epoch}", 3)[sample] for epoch, sample in samples]
            images = self._changed(images, np.stack(drawn))
        return _in_size(images, self._view.size), labels.long()

    def test_batches(self, rank: int, world: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Every `world`-th test image from `rank` on, 500 at a time."""
        images, labels = (each[rank::world] for each in self._halves[1])
        size = self._view.test_size or self._view.size
        for some, theirs in zip(torch.split(images, TEST_BATCH), torch.split(labels, TEST_BATCH), strict=True):
            yield _in_size(some, size), theirs.long()

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
    """The images in the size, if it is given: bilinear, smoothed before they shrink."""
    if size is None or size == images.shape[-1] or not len(images):
        return images
    return functional.interpolate(images.float(), (size, size), mode="bilinear", antialias=True)


def _mapped(path: Path, at: int, shape: tuple[int, ...]) -> tuple[Tensor, int]:
    """Bytes of the file from `at` on, as a tensor that nobody writes to, and their end."""
    mapped = np.memmap(path, dtype=np.uint8, mode="c", offset=at, shape=shape)
    return torch.from_numpy(mapped), at + mapped.size
