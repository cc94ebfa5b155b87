"""The model, optimizer and data of one rank, and the step that they take together."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from torusrun.training.collectives.device import without_trials
from torusrun.training.config import Config, Ranks
from torusrun.training.data.feed import Feed
from torusrun.training.evaluation import Evaluation, Members, evaluate
from torusrun.training.meeting import agree
from torusrun.training.norm import convert, layers, running
from torusrun.training.parts import Parts
from torusrun.training.progress import Progress
from torusrun.training.recipe import fits
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.reporting.exits import PeerLost
from torusrun.training.reporting.metrics import Trace
from torusrun.training.step.backward import Backward
from torusrun.training.step.form import Form
from torusrun.training.step.mean_gradient import MeanGradient, Waiting


class Late:
    """The newest numbers that have arrived: on a CPU those of the last `put`, on a GPU those of the `put` before.

    All ranks must put the same numbers at the same steps; then all get the same, and may base decisions on them.
    """

    def __init__(self) -> None:
        self.values: list[float] = []
        self._coming: tuple[Tensor, torch.cuda.Event] | None = None

    def put(self, numbers: Tensor) -> None:
        """Begin to copy `numbers` [N] to `values`."""
        if numbers.device.type != "cuda":
            self.values = numbers.tolist()
            return
        if self._coming:  # the numbers of the last `put`
            before, event = self._coming
            event.synchronize()
            self.values = before.tolist()
        pinned = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
        pinned.copy_(numbers, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._coming = pinned, event


class Diverged(RuntimeError):
    """This rank computed different weights from the others."""


class Learner:
    """One rank's replica at `progress`; all ranks hold the same bits.

    `before` is the progress before the newest call of `step`. `course` gives the settings at each point of the
    training. `trace` records every step.
    """

    def __init__(self, config: Config, ranks: Ranks, device: torch.device, parts: Parts) -> None:
        self._train, self._ranks, self.device = config.train, ranks, device
        self.data, self.model, self.course = parts.data, parts.model, parts.course
        self.norms = convert(parts.model, config.train.norm, ranks)
        self._backward = Backward(config.train, device)
        self.form = Form(config, ranks, device, parts.model)
        self.steps = MeanGradient(config, ranks, parts, self._backward, form=self.form)
        self._optimizer = self.steps.optimizer
        self._feed = Feed(parts.data, parts.course, ranks, config.train, device)
        self._members = Members(self.model, self._optimizer, self.check_alike)
        self._numbers, self._reading = Late(), Waiting()
        self.trace = Trace(config.trace if config.train.trace and ranks.rank == 0 else None)
        self.progress = self.before = Progress()
        self.last_rate = 0.0
        self._alone: tuple[torch.Tensor, torch.Tensor] | None = None

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def batch(self) -> int:
        """Samples of the next step, over all ranks."""
        batch = self.course.batch_at(self.progress)
        if by := fits.undivided(self._train, batch, self._ranks.world):
            raise ValueError(f"the batch after {self.progress.samples} samples is {batch}: it does not divide by {by}")
        return batch

    @property
    def finished(self) -> bool:
        """Whether every sample was seen in every epoch."""
        return self.course.finished(self.progress)

    @property
    def epochs(self) -> float:
        return self.progress.epochs(self.data.train_samples)

    @property
    def mean_loss(self) -> float:
        """The mean loss over all ranks, of the newest step with a known loss: on a GPU the step before the last."""
        return self._numbers.values[0] if self._numbers.values else math.nan

    @property
    def loss_scale(self) -> float | None:
        """The factor by which fp16 multiplies the loss of the next step."""
        return self._backward.scale.scale if self._backward.scale else None

    def step(self, stop: bool) -> bool:
        """Take one step.

        True on all ranks if any rank passed `stop`: on a GPU one step later, because nothing here waits for the device.
        """
        self.before, phase = self.progress, self.course.phase_at(self.progress.samples)
        if not self.progress.steps:
            self._members.at_phase(None, phase)
        self._step(stop)
        following = None if self.finished else self.course.phase_at(self.progress.samples)
        self._numbers.put(self.steps.numbers())
        if following != phase:
            self._members.at_phase(phase, following)
        return len(self._numbers.values) > 0 and self._numbers.values[1] > 0

    def waited_s(self) -> float | None:
        """The time that this rank waited for others since the last call; None on a GPU: only the device knows it."""
        return None if self.device.type == "cuda" else self.steps.waited_s()

    def read_s(self) -> float:
        """The time that this rank waited for its share of the batches since the last call, to be read and decoded."""
        return self._reading.spent_s()

    def step_alone(self) -> None:
        """Do the work of a step without the other ranks, at a rate of zero. It learns nothing; it is for timing.

        A batch that a training reads beside the step before is read once: that is no part of a step.
        """
        self.model.zero_grad(set_to_none=False)
        if self._alone is None or not self._feed.reads_ahead:
            self._alone = self._feed.alone(self.progress)
        with self.form.step(self._alone[0].shape):
            self._backward.run(self.model, *self._alone)
        self._optimizer.step(0.0)

    def evaluate(self) -> Evaluation:
        """Evaluate on the test set, with the view of the last step; all ranks must call it together."""
        self.norms.before_evaluation()
        self._feed.look_once(self.progress)
        with self._backward.precision(), self.form.uncompiled(), without_trials():
            return evaluate(self.model, self._feed.test_batches(), self.device, self.data.classes, self._members.states)

    def state(self) -> dict[str, Any]:
        """The state that a resumed run needs; the sample order, the phase and the rates follow from the progress."""
        return {
            "progress": asdict(self.progress),
            "before": asdict(self.before),
            "data": self._data_facts(),
            "compiled": self.form.compiled,
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            **({"loss_scale": self._backward.scale.state_dict()} if self._backward.scale else {}),
            **({"ensemble": members} if (members := self._members.state_dict()) else {}),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a `state`. Raises ConfigError if the data set has changed: every epoch would change too."""
        has = self._data_facts()
        had = state.get("data", has)
        if had != has:
            now, then = (
                "{train_samples} training samples of {classes} classes".format(**facts) for facts in (has, had)
            )
            others = f"there are {now}, and {then} were there when the run began"
            if now == then:
                others = f"there are {now}, as when the run began, but not the same ones"
            raise ConfigError(f"train.data: {others}; restore the files, or submit a new run")
        self.form.follow(state.get("compiled"))
        self.progress = Progress(**state["progress"])
        self.before = Progress(**state.get("before", state["progress"]))
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        if self._backward.scale and "loss_scale" in state:
            self._backward.scale.load_state_dict(state["loss_scale"])
        self._members.load_state_dict(state.get("ensemble", {}))

    def start_alike(self) -> list[int]:
        """Take rank 0's weights if any rank drew others from the seed; returns those ranks. All ranks must call it."""
        tensors = self.model.state_dict().values()
        others = agree.differing(tensors)
        if others:
            for tensor in tensors:
                dist.broadcast(tensor, 0)
        return others

    def check_alike(self) -> None:
        """Raises Diverged on a rank whose weights differ from the others, and PeerLost on the others.

        All ranks must call it together. Statistics of the last batch differ, so they are averaged first.
        """
        self.norms.before_evaluation()
        others = agree.differing(self.model.state_dict().values())
        if not others:
            return
        who = f"rank {', '.join(map(str, others))} of {self._ranks.world}"
        what = f"after step {self.progress.steps} the weights of {who} are not those of the other ranks"
        if self._ranks.rank in others:
            raise Diverged(f"{what}: its memory or device fails, or its program differs; leave its host out and resume")
        raise PeerLost(what)

    def finite(self) -> bool:
        """Whether the newest known loss, the weights and the running statistics are finite. Waits for the device.

        The same on all ranks while they are alike. With fp16 a loss may overflow: its step is skipped.
        """
        losses = [] if self._backward.scale else self._numbers.values[:1]
        trained = (each for each in self.model.parameters() if each.requires_grad)  # a frozen mask may have infinity
        held = [*trained, *running(layers(self.model))]
        return all(map(math.isfinite, losses)) and bool(torch.stack([each.isfinite().all() for each in held]).all())

    def _data_facts(self) -> dict[str, Any]:
        """The facts of the data set that must be the same in a resumed run."""
        data = self.data
        return {"train_samples": data.train_samples, "classes": data.classes, "identity": data.identity}

    def _step(self, stop: bool) -> None:
        course, before = self.course, self.progress
        following, moment = before.after(self.batch), course.moment_at(before)
        with self._reading.during():
            inputs, labels = self._feed.take(before)
        self.last_rate = course.rate_at(moment)
        self._optimizer.before_step(moment, course.weight_decay_at(before))
        with self.form.step(inputs.shape):
            self.steps.take(inputs, labels, self.last_rate, stop, before.steps)
        self._trace(inputs, following)
        self.progress = following

    def _trace(self, inputs: torch.Tensor, following: Progress) -> None:
        """Write a step's line, with the batch and the size of that step."""
        if self.trace.active:
            self.trace.buckets(self.steps.buckets())
            world = self._ranks.world
            seen = {"batch": len(inputs) * world, "size": inputs.shape[-1], "world": world}
            holds = self.course.facts_at(self.progress)
            self.trace.step(step=following.steps, **{**holds, "lr": self.last_rate, **seen})
