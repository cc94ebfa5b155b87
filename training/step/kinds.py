"""The two kinds of step with many ranks: by the mean gradient, or by each rank's own with an average now and then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

from torusrun.training.collectives import all_reduce
from torusrun.training.complete import complete
from torusrun.training.config import Config
from torusrun.training.meeting.ranks import Ranks
from torusrun.training.parts import Parts
from torusrun.training.recipe.protocols import Optimizer
from torusrun.training.step.backward import Backward
from torusrun.training.step.local_sgd import StateAverage
from torusrun.training.step.waiting import Waiting
from torusrun.training.sync import synchronization
from torusrun.training.sync.buckets.planner import Planner
from torusrun.training.sync.gradients import Gradients
from torusrun.training.sync.synchronization import Synchronization


def build(config: Config, ranks: Ranks, parts: Parts, backward: Backward) -> tuple[Steps, Optimizer]:
    """The recipe's kind of steps, and the optimizer that moves the weights; all ranks build it at the same time."""
    sync, planner = synchronization.build(config, ranks, parts.model)
    own = synchronization.in_shards(parts.optimizer, sync)
    optimizer, keys = complete(own, Optimizer), config.train.sync
    if keys.every == 1:
        return MeanGradient(backward, optimizer, sync, planner, steps_in_parts(own), config.train.clip_norm), optimizer
    assert keys.all_reduce != "ddp", "recipe/fits.py refuses it"
    reduce = all_reduce.build(keys.all_reduce, config.grid, hybrid_bytes=keys.hybrid_bytes)
    return OwnGradient(backward, optimizer, sync, StateAverage(parts.model, optimizer, reduce)), optimizer


def steps_in_parts(optimizer: Optimizer) -> bool:
    """Whether its `step_part` matches its `step`: not if a subclass overrides `step` alone."""
    steps = (vars(kind) for kind in type(optimizer).__mro__ if {"step", "step_part"} & vars(kind).keys())
    return "step_part" in next(steps, {})


class MeanGradient:
    """Every step uses the mean gradient of all ranks.

    `meet` follows one or more calls of `take`, on all ranks after the same number.
    """

    def __init__(
        self,
        backward: Backward,
        optimizer: Optimizer,
        sync: Synchronization,
        planner: Planner | None,
        in_parts: bool,
        clip_norm: float,
    ) -> None:
        self._backward, self._optimizer, self._sync, self._planner = backward, optimizer, sync, planner
        self._in_parts, self._clip_norm, self._waiting = in_parts, clip_norm, Waiting()

    def take(self, inputs: Tensor, labels: Tensor, rate: float, stop: bool, steps: int) -> None:
        """Take one step on this rank's share of a batch, after `steps` others."""
        sync = self._sync
        if self._planner:
            self._planner.before_step(steps)
        sync.clear()
        self._backward.run(
            sync.module, inputs, labels, holding=sync.holding, before_last=lambda loss: sync.begin(loss, stop)
        )
        scale = self._backward.scale
        if scale or self._clip_norm:
            learning = [parameter for some in self._arriving() for parameter in some]
            if not scale or scale.unscale_([p.grad for p in learning if p.grad is not None]):
                self._move_at_once(learning, rate)
        else:
            self._move_as_they_arrive(rate)

    def buckets(self) -> list[dict[str, object]]:
        """The buckets for a trace: the number of gradients, the bytes, and the algorithm of each."""
        return self._sync.facts()

    def meet(self, stop: bool) -> Tensor:
        """[mean loss, above 0 if any rank wants to stop] of the last step; after it all ranks hold the same state."""
        return self._sync.numbers()

    def waited_s(self) -> float | None:
        """The time that this rank waited for others since the last call; None if it is unknown."""
        waited_s = self._waiting.spent_s()
        return waited_s if isinstance(self._sync, Gradients) else None  # DDP waits within backward

    def _arriving(self) -> Iterator[Sequence[Parameter]]:
        return self._waiting.arriving(self._sync.arriving())

    def _move_at_once(self, learning: list[Parameter], rate: float) -> None:
        """Move all weights, by gradients of at most `clip_norm`: all ranks have the same ones, and clip alike."""
        if self._clip_norm:
            torch.nn.utils.clip_grad_norm_(learning, self._clip_norm)
        self._optimizer.step(rate)
        self._optimizer.finish()

    def _move_as_they_arrive(self, rate: float) -> None:
        """Move the weights of each bucket as it arrives, or all at the end if the optimizer does not step in parts."""
        for parameters in self._arriving():
            if self._in_parts:
                self._optimizer.step_part(parameters, rate)
        if not self._in_parts:
            self._optimizer.step(rate)
        self._optimizer.finish()


class OwnGradient:
    """As `MeanGradient`, but each step uses only this rank's gradient; `meet` gives each rank the mean state of all."""

    def __init__(self, backward: Backward, optimizer: Optimizer, sync: Synchronization, average: StateAverage) -> None:
        self._backward, self._optimizer, self._sync, self._average = backward, optimizer, sync, average
        self._loss = torch.zeros(())
        self._waiting = Waiting()

    def take(self, inputs: Tensor, labels: Tensor, rate: float, stop: bool, steps: int) -> None:
        self._sync.clear()
        self._loss = self._backward.run(self._sync.module, inputs, labels)
        self._optimizer.step(rate)

    def buckets(self) -> list[dict[str, object]]:
        return [self._average.facts()]

    def meet(self, stop: bool) -> Tensor:
        with self._waiting.during():
            return self._average.take(torch.stack([self._loss, torch.full_like(self._loss, float(stop))]))

    def waited_s(self) -> float | None:
        return self._waiting.spent_s()


Steps = MeanGradient | OwnGradient
