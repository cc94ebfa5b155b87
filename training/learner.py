"""What learns: model, optimizer and data of one rank, and the one step they take together."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import torch
import torch.distributed as dist

from training.config import Config
from training.cut_off import PeerLost
from training.data import order
from training.evaluate import Evaluation, evaluate
from training.norm.convert import convert
from training.parts import Parts
from training.progress import Progress
from training.ranks import Ranks
from training.recipe import fits
from training.step import ways
from training.step.backward import Backward
from training.step.late import Late
from training.sync import alike


class Diverged(RuntimeError):
    """This rank computed something else than the others."""


class Learner:
    """One rank's replica, which has come as far as `progress`; all ranks hold the same bits."""

    def __init__(self, config: Config, ranks: Ranks, device: torch.device, parts: Parts) -> None:
        self._train, self._ranks, self.device = config.train, ranks, device
        self._data, self.model = parts.data, parts.model
        self._rate_at, self._batch_at = parts.rate_at, parts.batch_at
        self._norms = convert(parts.model, config.train.norm, ranks)
        self._backward = Backward(config.train, device)
        self._steps, self._optimizer = ways.build(config, ranks, parts, self._backward)
        self._numbers = Late()
        self.progress = Progress()
        self.last_rate = 0.0
        self.total_samples = self._train.epochs * self._data.train_samples

    @property
    def parameters(self) -> int:
        """How many numbers are learned."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def batch(self) -> int:
        """Samples of the next step, over all ranks."""
        batch = self._batch_at(self.progress)
        if by := fits.undivided(self._train, batch, self._ranks.world):
            raise ValueError(f"the batch after {self.progress.samples} samples is {batch}: it does not divide by {by}")
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

    @property
    def mean_loss(self) -> float:
        """The mean over all ranks, of the newest step whose numbers have come: on a GPU the one before the last."""
        return self._numbers.values[0] if self._numbers.values else math.nan

    @property
    def loss_scale(self) -> float | None:
        """By what fp16 multiplies the loss of the next step."""
        return self._backward.scale.scale if self._backward.scale else None

    def step(self, stop: bool) -> bool:
        """Take one step, or as many as `train.sync.every` says.

        True on all ranks if any rank said `stop`: on a GPU one step later, for nothing here waits for the device.
        """
        for _ in range(self._train.sync.every):
            batch = self.batch
            self.last_rate = self._rate_at(self.progress.middle_of_step(batch, self._data.train_samples))
            self._steps.take(*self._next(batch), self.last_rate, stop, self.progress.steps)
            self.progress = self.progress.after(batch)
            if self.finished:
                break
        self._numbers.put(self._steps.meet(stop))
        return len(self._numbers.values) > 0 and self._numbers.values[1] > 0

    def step_alone(self) -> None:
        """A step's work without the other ranks, at a rate of zero: to be timed, for it learns nothing."""
        self.model.zero_grad(set_to_none=False)
        self._backward.run(self.model, *self._next(self.batch))
        self._optimizer.step(0.0)

    def evaluate(self) -> Evaluation:
        """On the test set; all ranks must ask together."""
        self._norms.before_evaluation()
        data, rank, world = self._data, self._ranks.rank, self._ranks.world
        in_batches = getattr(data, "test_batches", None)
        batches = in_batches(rank, world) if in_batches else [data.test_shard(rank, world)]
        with self._backward.precision():
            return evaluate(self.model, batches, self.device, data.classes)

    def gather(self) -> None:
        """Before `state`, on all ranks together: collect on each what the optimizer has in shards."""
        if gather := getattr(self._optimizer, "gather", None):
            gather()

    def state(self) -> dict[str, Any]:
        """All that a resumed run needs; the sample order and the rates follow from the progress."""
        return {
            "progress": asdict(self.progress),
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            **({"loss_scale": self._backward.scale.state_dict()} if self._backward.scale else {}),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a `state`."""
        self.progress = Progress(**state["progress"])
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        if self._backward.scale and "loss_scale" in state:
            self._backward.scale.load_state_dict(state["loss_scale"])

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

        All ranks must call it together. Statistics of the last batch, which differ, are averaged first.
        """
        self._norms.before_evaluation()
        others = alike.differing(self.model.state_dict().values())
        if not others:
            return
        who = f"rank {', '.join(map(str, others))} of {self._ranks.world}"
        what = f"after step {self.progress.steps} the weights of {who} are not those of the other ranks"
        if self._ranks.rank in others:
            raise Diverged(f"{what}: its memory or device fails, or its program differs; leave its host out and resume")
        raise PeerLost(what)

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
        return self._moved(images), self._moved(labels)

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        """On the device; from pinned memory, as a copy from any other would wait for it."""
        return tensor.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else tensor
