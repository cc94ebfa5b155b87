"""Links that several collectives, or several hops of one, use at the same time.

Source: max link load predicts the time (measured: shaped links, a ring in a bad order sends 2.00 times the bytes and
takes 2.07 times as long). Equal sharing is assumed (derived).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence


def link_loads(flows: Sequence[Sequence[Hashable]], size_bytes: Sequence[float]) -> Counter[Hashable]:
    """Bytes on every link when flow i takes its links with `size_bytes[i]`."""
    loads: Counter[Hashable] = Counter()
    for links, size in zip(flows, size_bytes, strict=True):
        for link in links:
            loads[link] += size  # type: ignore[assignment]  # Counter is typed for int alone
    return loads


def slowest_s(loads: dict[Hashable, float], bandwidth_bytes_per_s: dict[Hashable, float]) -> float:
    """The time of the most loaded link: no schedule is faster, and equal sharing reaches it."""
    return max((load / bandwidth_bytes_per_s[link] for link, load in loads.items()), default=0.0)


def uplink_share_bytes_per_s(uplink_bytes_per_s: float, members: int, link_bytes_per_s: float) -> float:
    """What each of `members` gets of a shared uplink when all send out of it, at most its own link."""
    return min(link_bytes_per_s, uplink_bytes_per_s / members)
