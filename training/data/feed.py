"""The inputs of a rank, step by step."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from torusrun.training.config import Ranks
from torusrun.training.data import order
from torusrun.training.data.view import View
from torusrun.training.progress import Progress
from torusrun.training.recipe.protocols import DataSet, lacks
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import Train
from torusrun.training.schedule import Course


class Feed:
    """This rank's share of each batch, on `device`. It sets the data set's view, and announces the next samples."""

    def __init__(self, data: DataSet, course: Course, ranks: Ranks, train: Train, device: torch.device) -> None:
        self._data, self._course, self._ranks, self._device = data, course, ranks, device
        self._seed = train.seed
        self._view: View | None = None
        self.reads_ahead = not lacks(data, DataSet, "prefetch")
        self._copies = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def take(self, progress: Progress) -> tuple[Tensor, Tensor]:
        """Inputs [B, ...] and labels [B] of the step after `progress`."""
        batch = self.alone(progress)
        if self.reads_ahead:
            self._announce(progress.after(self._course.batch_at(progress)))
        return batch

    def alone(self, progress: Progress) -> tuple[Tensor, Tensor]:
        """Inputs and labels as `take` returns them; no samples are announced."""
        self.look(progress)
        return self._on_device(*self._data.train_batch(self.samples(progress)))

    def test_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """This rank's test samples in batches: inputs [N, ...] and labels [N]."""
        for inputs, labels in self._data.test_batches(self._ranks.rank, self._ranks.world):
            yield self._on_device(inputs, labels)

    def _announce(self, following: Progress) -> None:
        """Announce the samples of the step after `following`, if it has the same view and the training goes on."""
        if self._course.view_at(following) == self._view and not self._course.finished(following):
            self._data.prefetch(self.samples(following))

    def look(self, progress: Progress) -> None:
        """Set the view for the step after `progress`."""
        view = self._course.view_at(progress)
        if view != self._view:
            self._data.look(view)
        self._view = view

    def look_once(self, progress: Progress) -> None:
        """Set the view for the step after `progress`, unless a view is set already."""
        if self._view is None:
            self.look(progress)

    def samples(self, progress: Progress) -> list[tuple[int, int]]:
        """The (epoch, sample) pairs of this rank's share of the step after `progress`."""
        return order.rank_batch(
            progress.samples, batch=self._course.batch_at(progress), rank=self._ranks.rank, world=self._ranks.world,
            samples=self._data.train_samples, seed=self._seed,
        )  # fmt: skip

    def _on_device(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        normal = self._data.normalize_on_device(self._moved(inputs))
        if normal.dtype == torch.uint8:
            raise ConfigError(
                "train.data: its batches are bytes, which no network takes; give the data set a "
                "normalize_on_device(inputs) that returns floating-point numbers, or return these from train_batch"
            )
        return normal, self._moved(labels)

    def _moved(self, tensor: Tensor) -> Tensor:
        """The tensor on the device. A GPU copies it from pinned memory while it computes the step before.

        A copy from other memory would wait for the device.
        """
        if self._copies is None or tensor.device.type == "cuda":
            return tensor
        with torch.cuda.stream(self._copies):
            moved = tensor.pin_memory().to(self._device, non_blocking=True)
        computing = torch.cuda.current_stream(self._device)
        computing.wait_stream(self._copies)
        moved.record_stream(computing)  # its memory is not free before that stream has read it
        return moved
