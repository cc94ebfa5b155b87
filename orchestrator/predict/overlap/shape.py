"""Plans of groups that are not optimal but in use: by number, by size, or given."""

from __future__ import annotations

from collections.abc import Sequence


def equal_groups(sizes_bytes: Sequence[float], count: int) -> tuple[int, ...]:
    """About `count` groups of the same size, cut where a tensor ends."""
    return capped_groups(sizes_bytes, sum(sizes_bytes) / count)


def capped_groups(sizes_bytes: Sequence[float], cap_bytes: float) -> tuple[int, ...]:
    """A group closes as soon as it has `cap_bytes` (as in DDP's reducer, verified)."""
    groups, held, count = [], 0.0, 0
    for size in sizes_bytes:
        held, count = held + size, count + 1
        if held >= cap_bytes:
            groups.append(count)
            held, count = 0.0, 0
    return tuple(groups + [count] if count else groups)
