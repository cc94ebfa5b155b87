"""Times by the clock of a device."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch


def times_ms(act: Callable[[], object], rounds: int, device: torch.device) -> list[float]:
    """The milliseconds of each of `rounds` calls: on a card between two events around it, without the host's part."""
    if device.type != "cuda":
        return [_host_ms(act) for _ in range(rounds)]
    events = []
    for _ in range(rounds):
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        act()
        after.record()
        events.append((before, after))
    torch.cuda.synchronize(device)
    return [before.elapsed_time(after) for before, after in events]


def _host_ms(act: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    act()
    return 1e3 * (time.perf_counter() - started_s)
