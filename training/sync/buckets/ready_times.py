"""The ready times of gradients in the backward pass, measured during the training."""

from __future__ import annotations

import statistics
import time
from typing import Any, Protocol

import torch

WARM_UP_STEPS = 2  # the first ones choose kernels and open connections


class Clock(Protocol):
    def now(self) -> Any:
        """A mark."""

    def between_s(self, first: Any, second: Any) -> float:
        """The seconds from one mark to another."""


class HostClock:
    """A clock for a CPU, which computes at once."""

    def now(self) -> float:
        return time.perf_counter()

    def between_s(self, first: float, second: float) -> float:
        return second - first


class StreamClock:
    """A clock for a GPU: events in the stream of the computation. Nothing waits until the times are read."""

    def now(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def between_s(self, first: torch.cuda.Event, second: torch.cuda.Event) -> float:
        second.synchronize()
        return float(first.elapsed_time(second)) / 1e3


class ReadyTimes:
    """A `Watch` of gradients on `device`: marks for each, step by step."""

    def __init__(self, device: torch.device) -> None:
        self._clock: Clock = StreamClock() if device.type == "cuda" else HostClock()
        self._steps: list[tuple[Any, dict[int, Any]]] = []

    def begin(self) -> None:
        self._steps.append((self._clock.now(), {}))

    def complete(self, number: int) -> None:
        self._steps[-1][1][number] = self._clock.now()

    def median_s(self, gradients: int) -> list[float]:
        """Seconds from the begin of backward to each gradient, the median over the steps after the warm-up.

        A gradient that never arrived counts as ready with the last. It waits for the device.
        """
        steps = [
            {number: self._clock.between_s(start, mark) for number, mark in marks.items()}
            for start, marks in self._steps[min(WARM_UP_STEPS, len(self._steps) - 1) :]
        ]
        last_s = max((max(step.values(), default=0.0) for step in steps), default=0.0)
        return [_median_s([step[n] for step in steps if n in step], last_s) for n in range(gradients)]


def _median_s(times_s: list[float], otherwise_s: float) -> float:
    return statistics.median(times_s) if times_s else otherwise_s
