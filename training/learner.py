"""What learns: model, optimizer and data of one rank, and the one step they take together."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from training.config import Config
from training.cut_off import PeerLost
from training.data import order
from training.evaluate import accuracy
from training.parts import Parts
from training.progress import Progress
from training.ranks import Ranks
from training.sync import alike, synchronization


class Diverged(RuntimeError):
    """This rank computed something else than the others."""


class Learner:
    """One rank's replica, which has come as far as `progress`; all ranks hold the same bits."""

    def __init__(self, config: Config, ranks: Ranks, device: torch.device, parts: Parts) -> None:
        self._train, self._ranks, self.device = config.train, ranks, device
        self._data, self.model, self._optimizer = parts.data, parts.model, parts.optimizer
        self._rate_at, self._batch_at = parts.rate_at, parts.batch_at
        self._sync, self._planner = synchronization.build(config, ranks, self.model)
        self.progress = Progress()
        self.last_rate, self.mean_loss = 0.0, 0.0  # of the last step; the loss is the mean over all ranks
        self.total_samples = self._train.epochs * self._data.train_samples

    @property
    def parameters(self) -> int:
        """How many numbers are learned."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def batch(self) -> int:
        """Samples of the next step, over all ranks."""
        batch = self._batch_at(self.progress)
        if batch < 1 or batch % self._ranks.world:
            after = f"after {self.progress.samples} samples"
            raise ValueError(f"the batch {after} is {batch}, which does not divide by the {self._ranks.world} ranks")
        return batch

    @property
    def finished(self) -> bool:
        """Whether every sample was seen in every epoch; the last batch may reach into one epoch more."""
        return self.progress.samples >= self.total_samples

    @property
    def total_steps(self) -> int:
        """Steps of the whole training, if the batch stays what it is now."""
        return self.progress.steps_at(self.total_samples, self.batch)

    @property
    def epochs(self) -> float:
        """Passes over the training set so far."""
        return self.progress.epochs(self._data.train_samples)

    def step(self, stop: bool) -> bool:
        """Take one step; true on all ranks if any rank said `stop`."""
        if self._planner:
            self._planner.before_step(self.progress.steps)
        batch = self.batch
        loss = self._forward(self._sync.module, batch)
        self._sync.begin(loss, stop)
        torch.autograd.backward(loss)
        self.last_rate = self._rate_at(self.progress.middle_of_step(batch, self._data.train_samples))
        self._update(self.last_rate)
        self.progress = self.progress.after(batch)
        self.mean_loss, stopping = self._sync.read()
        return stopping

    def step_alone(self) -> None:
        """A step's work without the other ranks, at a rate of zero: to be timed, for it learns nothing."""
        torch.autograd.backward(self._forward(self.model, self.batch))
        self._optimizer.step(0.0)

    def accuracy(self) -> float:
        """On the test set, 0 to 1; all ranks must ask together."""
        images, labels = self._data.test_shard(self._ranks.rank, self._ranks.world)
        return accuracy(self.model, images.to(self.device), labels.to(self.device))

    def state(self) -> dict[str, Any]:
        """All that a resumed run needs; the sample order and the rates follow from the progress."""
        return {
            "progress": asdict(self.progress),
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a `state`."""
        self.progress = Progress(**state["progress"])
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])

    def start_alike(self) -> list[int]:
        """Take rank 0's weights if any rank drew others from the seed, and say which did; all ranks must call it."""
        tensors = self.model.state_dict().values()
        others = alike.differing(tensors)
        if others:
            for tensor in tensors:
                dist.broadcast(tensor, 0)
        return others

    def check_alike(self) -> None:
        """Raises Diverged on a rank whose weights are not those of the others, and PeerLost on these.

        All ranks must call it together.
        """
        others = alike.differing(self.model.state_dict().values())
        if not others:
            return
        who = f"rank {', '.join(map(str, others))} of {self._ranks.world}"
        what = f"after step {self.progress.steps} the weights of {who} are not those of the other ranks"
        if self._ranks.rank in others:
            raise Diverged(f"{what}: its memory or device fails, or its program differs; leave its host out and resume")
        raise PeerLost(what)

    def _forward(self, module: nn.Module, batch: int) -> torch.Tensor:
        """The loss of this rank's share of the next `batch` samples, all gradients being zero."""
        images, labels = self._next(batch)
        self._sync.clear()
        return functional.cross_entropy(module(images), labels, label_smoothing=self._train.label_smoothing)

    def _update(self, rate: float) -> None:
        """Move the weights as their gradients arrive, or all at the end where the optimizer has no `step_part`."""
        step_part = getattr(self._optimizer, "step_part", None)
        for parameters in self._sync.arriving():
            if step_part:
                step_part(parameters, rate)
        if not step_part:
            self._optimizer.step(rate)

    def _next(self, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        samples = order.rank_batch(
            self.progress.samples,
            batch=batch,
            rank=self._ranks.rank,
            world=self._ranks.world,
            samples=self._data.train_samples,
            seed=self._train.seed,
        )
        images, labels = self._data.train_batch(samples)
        return images.to(self.device), labels.to(self.device)
