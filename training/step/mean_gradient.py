"""A step of many ranks: backward, the mean gradient of all ranks, and the update of the weights."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter

from torusrun.training.config import Config, Ranks
from torusrun.training.parts import Parts
from torusrun.training.recipe import names
from torusrun.training.recipe.protocols import Optimizer, complete
from torusrun.training.recipe.train import Train
from torusrun.training.reporting.output import warn
from torusrun.training.step.backward import Backward
from torusrun.training.step.form import Form
from torusrun.training.sync import synchronization
from torusrun.training.sync.gradients import Gradients
from torusrun.training.sync.synchronization import Synchronization

Item = TypeVar("Item")


class MeanGradient:
    """The steps of this rank: each moves the weights by the mean gradient of all ranks.

    All ranks build it at the same time.
    """

    def __init__(self, config: Config, ranks: Ranks, parts: Parts, backward: Backward, *, form: Form) -> None:
        self._sync, self._planner = synchronization.build(config, ranks, parts.model)
        self._backward, self.optimizer = backward, complete(parts.optimizer, Optimizer)
        self._in_parts, self._clip_norm = steps_in_parts(parts.optimizer), config.train.clip_norm
        self._waiting, self._form = Waiting(), form
        self._replayed = Replayed(self._mean) if replays(config.train, self._sync) else None

    def take(self, inputs: Tensor, labels: Tensor, rate: float, stop: bool, steps: int) -> None:
        """Take one step on this rank's share of a batch, after `steps` others."""
        if self._planner:
            self._planner.before_step(steps)
        lasting = not stop and (self._planner is None or self._planner.done)  # a graph has one layout, and no request
        if self._replayed and self._form.compiled and lasting and self._replayed.replay(inputs, labels):
            self._move_at_once([p for p in self._sync.module.parameters() if p.grad is not None], rate)
            return
        self._run_backward(inputs, labels, stop)
        scale = self._backward.scale
        if scale or self._clip_norm:
            learning = [parameter for some in self._arriving() for parameter in some]
            if not scale or scale.unscale_([p.grad for p in learning if p.grad is not None]):
                self._move_at_once(learning, rate)
        else:
            self._move_as_they_arrive(rate)

    def end(self) -> None:
        """Free what must not outlive the process group."""
        if self._replayed:
            self._replayed.end()

    def buckets(self) -> list[dict[str, object]]:
        """The buckets for a trace: the number of gradients, the bytes, and the algorithm of each."""
        return self._sync.facts()

    def numbers(self) -> Tensor:
        """[mean loss, above 0 if any rank wants to stop] of the last step."""
        return self._sync.numbers()

    def waited_s(self) -> float | None:
        """The time that this rank waited for others since the last call; None if it is unknown."""
        waited_s = self._waiting.spent_s()
        return waited_s if isinstance(self._sync, Gradients) else None  # DDP waits within backward

    def _run_backward(self, inputs: Tensor, labels: Tensor, stop: bool) -> None:
        sync = self._sync
        sync.clear()
        self._backward.run(
            sync.module, inputs, labels, holding=sync.holding, before_last=lambda loss: sync.begin(loss, stop)
        )

    def _mean(self, inputs: Tensor, labels: Tensor) -> None:
        """Make every gradient the ranks' mean."""
        self._run_backward(inputs, labels, stop=False)
        for _ in self._sync.arriving():
            pass

    def _arriving(self) -> Iterator[Sequence[Parameter]]:
        return self._waiting.arriving(self._sync.arriving())

    def _move_at_once(self, learning: list[Parameter], rate: float) -> None:
        """Move all weights, by gradients of at most `clip_norm`: all ranks have the same gradients, and clip alike."""
        if self._clip_norm:
            torch.nn.utils.clip_grad_norm_(learning, self._clip_norm)
        self.optimizer.step(rate)
        self.optimizer.finish()

    def _move_as_they_arrive(self, rate: float) -> None:
        """Move the weights of each bucket as it arrives, or all at the end if the optimizer does not step in parts."""
        for parameters in self._arriving():
            if self._in_parts:
                self.optimizer.step_part(parameters, rate)
        if not self._in_parts:
            self.optimizer.step(rate)
        self.optimizer.finish()


def replays(train: Train, sync: Synchronization) -> bool:
    """Whether compiled steps are CUDA graphs: not in fp16, whose scale is a number of the host, and not in DDP."""
    graphs = isinstance(sync, Gradients) and sync.parameters[0].is_cuda and train.precision != "fp16"
    return graphs and train.model.name in names.MODELS.known


def steps_in_parts(optimizer: Optimizer) -> bool:
    """Whether its `step_part` matches its `step`: not if a subclass overrides `step` alone."""
    steps = (vars(kind) for kind in type(optimizer).__mro__ if {"step", "step_part"} & vars(kind).keys())
    return "step_part" in next(steps, {})


class Waiting:
    """Adds up the seconds that a rank waits for the others in its steps, by the clock of its own thread.

    In each step the ranks wait for the slowest rank. So the rank that waits least makes the others wait. Communication
    beside backward counts only if the rank waits for it in the end; sums over the ranks within the model (batch norm
    over groups) count as computing. On a GPU the thread queues work and does not wait, so the time is unknown.
    """

    def __init__(self) -> None:
        self._spent_s = 0.0

    @contextmanager
    def during(self) -> Iterator[None]:
        """Counts the time within it as waiting."""
        began_s = time.perf_counter()
        try:
            yield
        finally:
            self._spent_s += time.perf_counter() - began_s

    def arriving(self, items: Iterator[Item]) -> Iterator[Item]:
        """The items; the time until each item, and until their end, counts as waiting."""
        while True:
            with self.during():
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item

    def spent_s(self) -> float:
        """The seconds of waiting since the last call."""
        spent_s, self._spent_s = self._spent_s, 0.0
        return spent_s


EAGER_STEPS = 3  # of each shape, before its capture: they compile, and choose algorithms
MOST_SHAPES = 8
COPIES = 2  # of a step's memory: a graph keeps its own, and other work takes place beside it


class _Graph(NamedTuple):
    graph: torch.cuda.CUDAGraph
    inputs: Tensor
    labels: Tensor


class Replayed:
    """`act(inputs, labels)`, which returns nothing and changes tensors in place, as a CUDA graph for each shape.

    So the host launches once a step, not a thousand times: with few images on each card the launches take longer than
    the work. A graph has fixed shapes and addresses. It replays the work of the device and none of Python's, so only
    built-in networks are replayed.
    """

    def __init__(self, act: Callable[[Tensor, Tensor], None]) -> None:
        self._act = act
        self._eager: dict[object, int] = {}
        self._graphs: dict[object, _Graph] = {}
        self._possible = True

    def replay(self, inputs: Tensor, labels: Tensor) -> bool:
        """Replay `act` on this batch; False if it has no graph, and nothing was done."""
        shape = inputs.shape, labels.shape, labels.dtype
        graph = self._graphs.get(shape) or self._captured(shape, inputs, labels)
        if graph is None:
            return False
        graph.inputs.copy_(inputs)
        graph.labels.copy_(labels)
        graph.graph.replay()
        return True

    def end(self) -> None:
        """Free the graphs: NCCL's communicators cannot end before them."""
        self._graphs.clear()
        self._possible = False

    def _captured(self, shape: object, inputs: Tensor, labels: Tensor) -> _Graph | None:
        self._eager[shape] = self._eager.get(shape, 0) + 1
        if not self._possible or self._eager[shape] <= EAGER_STEPS or len(self._graphs) == MOST_SHAPES:
            return None
        if torch.cuda.max_memory_allocated() * COPIES > torch.cuda.mem_get_info()[1]:
            self._impossible("the card's memory does not hold two steps")
            return None
        graph, held = torch.cuda.CUDAGraph(), (inputs.clone(), labels.clone())
        try:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # other threads copy checkpoints
                self._act(*held)
        except RuntimeError as error:
            self._impossible(str(error).strip().partition("\n")[0])
            return None
        self._graphs[shape] = _Graph(graph, *held)
        return self._graphs[shape]

    def _impossible(self, why: str) -> None:
        warn(f"training: steps are launched one kernel at a time, since they cannot be a CUDA graph: {why}")
        self._possible = False
