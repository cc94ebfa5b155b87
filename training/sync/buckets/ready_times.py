"""The ready times of gradients in the backward pass, measured during the training."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

WARM_UP_STEPS = 2  # the first ones choose kernels and open connections


class ReadyTimes:
    """Marks for the gradients of each step: times or, on a GPU, events in the stream of the computation."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._steps: list[tuple[Any, dict[int, Any]]] = []

    def begin(self) -> None:
        """The last forward pass of a step is done."""
        self._steps.append((self._mark(), {}))

    def complete(self, number: int) -> None:
        """The gradient with this number is complete."""
        self._steps[-1][1][number] = self._mark()

    def median_s(self, gradients: int) -> list[float]:
        """Seconds from the begin of backward to each gradient, the median over the steps after the warm-up.

        A gradient that never arrived counts as ready with the last. It waits for the device.
        """
        steps = [
            {number: self._between_s(start, mark) for number, mark in marks.items()}
            for start, marks in self._steps[min(WARM_UP_STEPS, len(self._steps) - 1) :]
        ]
        last_s = max((max(step.values(), default=0.0) for step in steps), default=0.0)
        return [_median_s([step[n] for step in steps if n in step], last_s) for n in range(gradients)]

    def _mark(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def _between_s(self, first: Any, second: Any) -> float:
        if not self._cuda:
            return float(second - first)
        second.synchronize()
        return float(first.elapsed_time(second)) / 1e3


def _median_s(times_s: list[float], otherwise_s: float) -> float:
    return statistics.median(times_s) if times_s else otherwise_s
