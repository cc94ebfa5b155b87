"""A data set of stored images: decoded by threads, cropped and batched as the view says.

Samples that could not be decoded are counted and named, and too many of them are an error. The next good sample in the
order of the files replaces a corrupt training sample. So the trained samples depend only on the files, and not on the
number of ranks. A corrupt test sample is left out.

The sizes of test images are measured once and kept in the index. An image with another size later is an error; since
reading the times of a hundred thousand files would be slow, its size is compared when it is decoded.
"""

from __future__ import annotations

import os
import threading
from array import array
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial

import torch

from torusrun.training.data.images import decode, index
from torusrun.training.data.images.ahead import Ahead, Batch, Decoding, Samples
from torusrun.training.data.images.decode import Cut, Middle
from torusrun.training.data.images.stored import SIDE, ImageSettings, Split, Stored
from torusrun.training.data.normal import IMAGENET, Normal
from torusrun.training.data.view import View
from torusrun.training.recipe.reading import ConfigError

A_FEW = 10
SHOWN = 3


class Register:
    """The corrupt samples of a half that this rank has met, each with a line in `lines`. Several threads may use it."""

    def __init__(self, stored: Stored, share: float, lines: list[str]) -> None:
        self._stored, self._lines = stored, lines
        self._limit = max(int(share * len(stored)), A_FEW) if share else 0
        self._why: dict[int, str] = {}
        self._lock = threading.Lock()

    def candidates(self, sample: int) -> Iterator[int]:
        """The sample, and its possible replacements, without those that are known to be corrupt.

        Raises ConfigError if none is left, or too many are corrupt.
        """
        count = len(self._stored)
        for step in range(count):
            self._check()
            if (candidate := (sample + step) % count) not in self._why:
                yield candidate
        raise self._error(f"all {count}")

    def add(self, sample: int, why: str) -> None:
        """Record a corrupt sample. Raises ConfigError for too many."""
        with self._lock:
            if sample not in self._why:
                self._why[sample] = why
                self._lines.append(f"{self._stored.name(sample)}: {why}")
        self._check()

    def _check(self) -> None:
        if len(self._why) > self._limit:
            raise self._error(f"more than {self._limit} of {len(self._stored)}")

    def _error(self, count: str) -> ConfigError:
        first = "; ".join(f"{self._stored.name(each)} ({why})" for each, why in list(self._why.items())[:SHOWN])
        return ConfigError(
            f"train.data.options.max_corrupt: {count} images below {self._stored.root} cannot be decoded: {first}; "
            "copy these files again, delete them, or raise the key"
        )


KIND = "sizes"
HEAD_BYTES = 1 << 15


class Sizes:
    """(width, height) of every image, from the headers; measured, or read from the index, at the first use.

    They do not change after that, because each rank takes its share of the images by them.
    """

    def __init__(self, stored: Stored) -> None:
        self._stored = stored
        self._pairs: list[tuple[int, int]] = []

    def measured(self, threads: Executor) -> list[tuple[int, int]]:
        if not self._pairs:
            stored = self._stored
            kept = index.kept(KIND, stored.root, stored.stamps, lambda: _measured(stored, threads))
            self._pairs = list(zip(kept.numbers["width"], kept.numbers["height"], strict=True))
        return self._pairs

    def check(self, sample: int, width: int, height: int) -> None:
        """Raises ConfigError, and drops the index, if the image's measured size was another."""
        if not self._pairs or self._pairs[sample] == (width, height):
            return
        index.forget(KIND, self._stored.root)
        was = "{} x {} pixels".format(*self._pairs[sample])
        raise ConfigError(
            f"train.data.options.root: {self._stored.name(sample)} is {width} x {height} pixels and was {was} when it "
            "was measured for 'rectangular'; the list of sizes is removed: resume the run, which measures them again"
        )


def _measured(stored: Stored, threads: Executor) -> index.Index:
    sizes = list(threads.map(partial(_size, stored), range(len(stored))))
    width, height = (array("I", column) for column in zip(*sizes, strict=True))
    return index.Index(numbers={"width": width, "height": height})


def _size(stored: Stored, sample: int) -> tuple[int, int]:
    """The size of an image; (1, 1) for other data, which is left out when it is decoded."""
    for most in (HEAD_BYTES, -1):
        try:
            return decode.size_of(stored.read(sample, most))
        except decode.Corrupt:
            continue
    return 1, 1


CHANNELS = 3
MOST_WORKERS = 8  # if the recipe gives no number; ranks of a node share its cores


class Images:
    """Images [B, 3, height, width] in bytes, and labels [B].

    After `normalize_on_device` they have ImageNet's mean 0 and deviation 1. A training image is a function of (seed,
    epoch, sample) and the view.
    """

    def __init__(self, halves: Split[Stored], seed: int, settings: ImageSettings) -> None:
        self._train, self._test = halves.train, halves.test
        self._seed, self._settings, self._view = seed, settings, View()
        self.classes, self.shape = halves.classes, (CHANNELS, SIDE, SIDE)
        self.train_samples, self.test_samples = len(self._train), len(self._test)
        self.identity = self._train.identity()
        self._problems: list[str] = []
        share, lines = settings.max_corrupt, self._problems
        self._bad, self._bad_tests = (Register(half, share, lines) for half in (self._train, self._test))
        self._sizes, self.normalize_on_device = Sizes(self._test), Normal(*IMAGENET)
        self._ahead = Ahead(self._start)
        self.use(None)

    def use(self, workers: int | None) -> None:
        """Decode in `workers` threads; None: as many as the cores that this process may use, at most 8."""
        cores = min(len(os.sched_getaffinity(0)), MOST_WORKERS)
        self._threads = ThreadPoolExecutor(workers or cores, thread_name_prefix="decode")

    def look(self, view: View) -> None:
        """Show images in this view from the next batch on; batches decoded for another view are dropped."""
        if view != self._view:
            self._ahead.drop()
        self._view, self.shape = view, (CHANNELS, *(view.size or SIDE,) * 2)
        if view.rectangular:
            self._sizes.measured(self._threads)  # measured now, so that the first evaluation does not wait

    def prefetch(self, samples: Samples) -> None:
        self._ahead.expect(samples)

    def read(self, samples: Samples) -> None:
        list(self._threads.map(self._train.read, [sample for _, sample in samples]))

    def train_batch(self, samples: Samples) -> Batch:
        """Images [B, 3, size, size] and labels [B] of (epoch, sample) pairs."""
        return self._ahead.take(samples)

    def test_batches(self, rank: int, world: int) -> Iterator[Batch]:
        """The rank's contiguous part of the test images, in batches; while a batch is used, the next is decoded."""
        decoding: deque[Decoding] = deque()
        for cut in decode.of_rank(self._cuts(), rank, world):
            decoding.append(self._start_test(cut))
            if len(decoding) > 1:
                yield from decoding.popleft().good()
        for last in decoding:
            yield from last.good()

    def problems(self) -> list[str]:
        """A line for every corrupt sample that this rank has met, in that order."""
        return list(self._problems)

    @property
    def _test_size(self) -> int:
        return self._view.test_size or self._view.size or SIDE

    def _start(self, samples: Samples) -> Decoding:
        size = self._view.size or SIDE
        images = torch.empty(len(samples), CHANNELS, size, size, dtype=torch.uint8)
        labels = torch.empty(len(samples), dtype=torch.long)
        fill = partial(self._decode, self._view, images.numpy(), labels.numpy())
        return Decoding(images, labels, [self._threads.submit(fill, at, *each) for at, each in enumerate(samples)])

    def _decode(
        self, view: View, images: decode.Pixels, labels: decode.Pixels, at: int, epoch: int, sample: int
    ) -> None:
        for candidate in self._bad.candidates(sample):
            draw = decode.draws(self._seed, epoch, sample)
            flip = draw() < 0.5
            box_of = partial(decode.train_box, view=view, size=images.shape[-1], draw=draw)
            try:
                decode.train_pixels(self._train.read(candidate), box_of, flip, self._settings.draft, images[at])
            except decode.Corrupt as error:
                self._bad.add(candidate, str(error))
                continue
            labels[at] = self._train.label(candidate)
            return

    def _start_test(self, cut: Cut) -> Decoding:
        images = torch.empty(len(cut.samples), CHANNELS, cut.height, cut.width, dtype=torch.uint8)
        labels = torch.empty(len(cut.samples), dtype=torch.long)
        fill = partial(self._decode_test, cut, self._test_size, self._view.test_margin, images.numpy(), labels.numpy())
        return Decoding(images, labels, [self._threads.submit(fill, at) for at in range(len(cut.samples))])

    def _decode_test(
        self, cut: Cut, size: int, margin: float, images: decode.Pixels, labels: decode.Pixels, at: int
    ) -> None:
        sample = cut.samples[at]

        def middle_of(width: int, height: int) -> Middle:
            self._sizes.check(sample, width, height)
            return decode.middle(width, height, cut, size, margin)

        try:
            decode.test_pixels(self._test.read(sample), middle_of, images[at])
            labels[at] = self._test.label(sample)
        except decode.Corrupt as error:
            self._bad_tests.add(sample, str(error))
            labels[at] = -1

    def _cuts(self) -> list[Cut]:
        if self._view.rectangular:
            sizes = self._sizes.measured(self._threads)
            return decode.rectangles(sizes, self._test_size, self._settings.test_batch)
        return decode.squares(self.test_samples, self._test_size, self._settings.test_batch)
