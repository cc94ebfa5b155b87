"""Backward with the all-reduce of its gradients as one CUDA graph: the host launches once a step, not a thousand times.

With few images on each card the launches take longer than the work. A graph has fixed shapes and addresses: it is
captured for each shape of a batch, and gradients stay where they are. It replays what the device did and nothing that
Python did, so only built-in networks are replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from torusrun.training.reporting.output import warn

EAGER_STEPS = 3  # of each shape, before its capture: they compile, and choose algorithms
MOST_SHAPES = 8
COPIES = 2  # of a step's memory: a graph keeps its own, and other work takes place beside it


class _Graph(NamedTuple):
    graph: torch.cuda.CUDAGraph
    inputs: Tensor
    labels: Tensor


class Replayed:
    """`act(inputs, labels)`, which returns nothing and changes tensors in place, as a graph for each shape."""

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
