"""What learns: model, optimizer and data of one rank, and the one step they take together."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional

from training.config import Config
from training.data import order
from training.evaluate import accuracy
from training.parts import Parts
from training.progress import Progress
from training.ranks import Ranks
from training.sync.gradients import FlatGradients
from training.sync.torus import Torus


class Learner:
    """One rank's replica after `steps_done` of `total_steps` steps; all ranks hold the same bits."""

    def __init__(self, config: Config, ranks: Ranks, device: torch.device, parts: Parts) -> None:
        self._train, self._ranks, self.device = config.train, ranks, device
        self._data, self.model, self._optimizer = parts.data, parts.model, parts.optimizer
        self._rate_at = parts.rate_at
        self._gradients = FlatGradients(self.model, Torus(*config.grid))
        self.steps_done = 0
        self.last_rate = 0.0
        self.total_steps = order.total_steps(self._train.epochs, self._train.batch, self._data.train_samples)

    @property
    def parameters(self) -> int:
        """How many numbers are learned."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def mean_loss(self) -> float:
        """The loss of the last step, mean over all ranks."""
        return self._gradients.mean_loss

    def epoch(self, steps: float) -> float:
        """The epochs seen after so many steps."""
        return steps * self._train.batch / self._data.train_samples

    def step(self, stop: bool) -> bool:
        """Take one step; true on all ranks if any rank said `stop`."""
        loss = self._backward()
        self._gradients.average(loss, stop)
        progress = Progress(self.steps_done, self.steps_done * self._train.batch)
        self.last_rate = self._rate_at(progress.middle_of_step(self._train.batch, self._data.train_samples))
        self._optimizer.step(self.last_rate)
        self.steps_done += 1
        return self._gradients.stop

    def step_alone(self) -> None:
        """A step's work without the other ranks, at a rate of zero: to be timed, for it learns nothing."""
        self._backward()
        self._optimizer.step(0.0)

    def accuracy(self) -> float:
        """On the test set, 0 to 1; all ranks must ask together."""
        images, labels = self._data.test_shard(self._ranks.rank, self._ranks.world)
        return accuracy(self.model, images.to(self.device), labels.to(self.device))

    def state(self) -> dict[str, Any]:
        """All that a resumed run needs; the sample order and the rates follow from the number of steps."""
        return {
            "steps_done": self.steps_done,
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a `state`."""
        self.steps_done = state["steps_done"]
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])

    def start_alike(self) -> None:
        """Take rank 0's initial weights, in case other hosts drew others; all ranks must call it together."""
        for tensor in self.model.state_dict().values():
            dist.broadcast(tensor, 0)

    def _backward(self) -> torch.Tensor:
        """Gradients of the next batch; returns the loss."""
        images, labels = self._batch()
        self._gradients.clear()
        loss = functional.cross_entropy(self.model(images), labels, label_smoothing=self._train.label_smoothing)
        torch.autograd.backward(loss)
        return loss

    def _batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        samples = order.rank_batch(
            self.steps_done,
            batch=self._train.batch,
            rank=self._ranks.rank,
            world=self._ranks.world,
            samples=self._data.train_samples,
            seed=self._train.seed,
        )
        images, labels = self._data.train_batch(samples)
        return images.to(self.device), labels.to(self.device)
