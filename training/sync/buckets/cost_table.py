"""The time of this training's all-reduce, by size."""

from __future__ import annotations

import statistics
import time

import torch
import torch.distributed as dist

from torusrun.training.collectives import device as devices
from torusrun.training.collectives.interface import AllReduce

SMALLEST_BYTES, GROWTH = 4096, 4
REPEATS = 3  # after a first one, which opens connections
ENOUGH_S = 0.5  # no larger sizes after one that took so long: their times follow from it


def measured(
    all_reduce: AllReduce, largest_bytes: int, dtype: torch.dtype, device: torch.device
) -> list[tuple[int, float]]:
    """(bytes, seconds), the slowest rank's, of growing vectors up to the largest; all ranks must call it together."""
    table: list[tuple[int, float]] = []
    size_bytes = min(SMALLEST_BYTES, largest_bytes)
    while True:
        vector = torch.zeros(all_reduce.padded(max(1, size_bytes // dtype.itemsize)), dtype=dtype, device=device)
        table.append((vector.nbytes, _time_s(all_reduce, vector, device)))
        if size_bytes == largest_bytes or table[-1][1] > ENOUGH_S:
            return table
        size_bytes = min(size_bytes * GROWTH, largest_bytes)


def _time_s(all_reduce: AllReduce, vector: torch.Tensor, device: torch.device) -> float:
    """The median time, the same on all ranks."""
    times_s = []
    for _ in range(1 + REPEATS):
        devices.wait(device)
        started_s = time.perf_counter()
        all_reduce.mean_(vector)
        devices.wait(device)
        times_s.append(time.perf_counter() - started_s)
    return slowest_s(times_s, device)


def slowest_s(times_s: list[float], device: torch.device) -> float:
    """The median over all times but the first. Each time is that of the slowest rank: the others wait for it."""
    slowest = torch.tensor(times_s[1:], dtype=torch.float64, device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(statistics.median(slowest.tolist()))
