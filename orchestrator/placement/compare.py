"""One arrangement beside the orders that a scheduler, or chance, would have given."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.cluster.model import Cluster
from orchestrator.placement.arrange import Arrangement
from orchestrator.placement.load import Loads, loads

SHUFFLES = 5


@dataclass(frozen=True)
class Row:
    """An order, and what it costs; a bound has no hop-bytes."""

    order: str
    largest_s_per_byte: float
    hop_bytes: float | None
    hottest: str

    def as_json(self) -> dict[str, Any]:
        return {
            "order": self.order,
            "largest_s_per_byte": self.largest_s_per_byte,
            "hop_bytes_per_byte": self.hop_bytes,
            "hottest": self.hottest,
        }


def rows(arrangement: Arrangement, cluster: Cluster, seed: int = 0) -> Iterator[Row]:
    """The order by the network, alphabetical order, the median of some random ones, and the two bounds."""
    yield _row("by the network", arrangement.loads)
    yield _row("alphabetical", loads(arrangement.rings, cluster, sorted(arrangement.hosts)))
    yield _row("random (median)", _median(arrangement, cluster, seed))
    yield Row("bound of this grid", arrangement.grid_bound_s_per_byte, None, "")
    yield Row("bound of any scheme", arrangement.cut_bound_s_per_byte, None, "")


def _median(arrangement: Arrangement, cluster: Cluster, seed: int) -> Loads:
    chance, found = random.Random(seed), []
    for _ in range(SHUFFLES):
        order = list(arrangement.hosts)
        chance.shuffle(order)
        found.append(loads(arrangement.rings, cluster, order))
    return sorted(found, key=lambda each: each.largest_s_per_byte)[SHUFFLES // 2]


def _row(order: str, found: Loads) -> Row:
    hottest = f"{found.hottest.kind} {found.hottest.name}" if found.hottest else "none"
    return Row(order, found.largest_s_per_byte, found.hop_bytes, hottest)


def table(compared: Sequence[Row]) -> str:
    """As text: milliseconds for every 100 MB of gradient, and how often the best of them."""
    best = compared[0]
    lines = [f"{'order':22}{'ms/100 MB':>10}{'x ours':>8}{'hop-bytes':>11}  hottest link"]
    for row in compared:
        ratio = row.largest_s_per_byte / best.largest_s_per_byte if best.largest_s_per_byte else 1.0
        hops = f"{row.hop_bytes:11.1f}" if row.hop_bytes is not None else " " * 11
        lines.append(f"{row.order:22}{row.largest_s_per_byte * 1e11:10.2f}{ratio:8.2f}{hops}  {row.hottest}".rstrip())
    return "\n".join(lines)
