"""A data set of stored images: decoded by threads, cropped and batched as the view says."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch

from torusrun.training.data.images import crops, decode, rectangles
from torusrun.training.data.images.ahead import Ahead, Batch, Decoding, Samples
from torusrun.training.data.images.corrupt import Register
from torusrun.training.data.images.image_options import SIDE, ImageSettings
from torusrun.training.data.images.rectangles import Cut, Middle
from torusrun.training.data.images.sizes import Sizes
from torusrun.training.data.images.stored import Split, Stored
from torusrun.training.data.normal import IMAGENET, Normal
from torusrun.training.data.view import View

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
        """Begin to decode these samples."""
        self._ahead.expect(samples)

    def read(self, samples: Samples) -> None:
        """Read the files of these samples, by the threads that decode."""
        list(self._threads.map(self._train.read, [sample for _, sample in samples]))

    def train_batch(self, samples: Samples) -> Batch:
        """Images [B, 3, size, size] and labels [B] of (epoch, sample) pairs."""
        return self._ahead.take(samples)

    def test_batches(self, rank: int, world: int) -> Iterator[Batch]:
        """The rank's contiguous part of the test images, in batches; the next batch is decoded while one is used."""
        decoding: deque[Decoding] = deque()
        for cut in rectangles.of_rank(self._cuts(), rank, world):
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
            draw = crops.draws(self._seed, epoch, sample)
            flip = draw() < 0.5
            box_of = partial(crops.train_box, view=view, size=images.shape[-1], draw=draw)
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
            return rectangles.middle(width, height, cut, size, margin)

        try:
            decode.test_pixels(self._test.read(sample), middle_of, images[at])
            labels[at] = self._test.label(sample)
        except decode.Corrupt as error:
            self._bad_tests.add(sample, str(error))
            labels[at] = -1

    def _cuts(self) -> list[Cut]:
        if self._view.rectangular:
            sizes = self._sizes.measured(self._threads)
            return rectangles.rectangles(sizes, self._test_size, self._settings.test_batch)
        return rectangles.squares(self.test_samples, self._test_size, self._settings.test_batch)
