"""The optimization problem of placement in numbers: a kind of host for every position.

Smaller is better: first the largest time per byte of gradient of any link, then the bytes times uplinks crossed (a
host's own link carries its position's traffic at any position, so it adds a constant).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torusrun.orchestrator.place.placement.bound import fewest_crossing
from torusrun.orchestrator.place.placement.fabric import Fabric
from torusrun.orchestrator.place.placement.rings import Rings

DIGITS = 9  # costs that differ only beyond these digits are equal
Cost = tuple[float, float]


@dataclass(frozen=True)
class PlacementProblem:
    """A torus of nodes and a tree of switches. A solution is a kind for every position."""

    rings: Rings
    fabric: Fabric

    @cached_property
    def unit_s(self) -> float:
        """The unit of costs: the time of a byte over the fastest host's link, so that rounding is uniform."""
        return 1.0 / max(self.fabric.host_bytes_per_s)

    @cached_property
    def uplink_cost(self) -> tuple[float, ...]:
        """Units per byte over each uplink."""
        return tuple(1.0 / bandwidth / self.unit_s for bandwidth in self.fabric.uplink_bytes_per_s)

    @cached_property
    def host_cost(self) -> tuple[float, ...]:
        """Units per byte over a host's own link, for each kind."""
        return tuple(1.0 / bandwidth / self.unit_s for bandwidth in self.fabric.host_bytes_per_s)

    @cached_property
    def egress(self) -> tuple[float, ...]:
        """Bytes per byte of gradient that leave each position."""
        return tuple(sum(neighbours.values()) for neighbours in self.rings.neighbours)

    @cached_property
    def fewest(self) -> tuple[float, ...]:
        """For every uplink, the fewest bytes over it for any choice of positions for the hosts below it."""
        return tuple(fewest_crossing(self.rings, below) for below in self.fabric.below)

    @cached_property
    def host_bound(self) -> float:
        """A lower bound of the most loaded host's cost: the slowest links on the positions with least traffic."""
        slow = sorted((self.host_cost[kind] for kind in self.fabric.kinds), reverse=True)
        return max((c * e for c, e in zip(slow, sorted(self.egress), strict=False)), default=0.0)

    @cached_property
    def bound(self) -> Cost:
        """A lower bound of the cost of any solution."""
        uplinks = [cost * bytes_ for cost, bytes_ in zip(self.uplink_cost, self.fewest, strict=True)]
        return rounded(max([self.host_bound, *uplinks], default=0.0), sum(self.fewest))

    def uplink_bytes(self, kinds: Sequence[int]) -> list[float]:
        """Bytes per byte of gradient over every uplink."""
        carried, crossed = [0.0] * len(self.fabric.uplinks), self.fabric.crossed
        for a, neighbours in enumerate(self.rings.neighbours):
            ways = crossed[kinds[a]]
            for b, bytes_ in neighbours.items():
                if kinds[b] != kinds[a] and b > a:
                    for uplink in ways[kinds[b]]:
                        carried[uplink] += bytes_
        return carried

    def cost(self, kinds: Sequence[int]) -> Cost:
        """The cost of a solution, rounded so that equal costs compare equal."""
        hosts = max((e * self.host_cost[kind] for e, kind in zip(self.egress, kinds, strict=True)), default=0.0)
        carried = self.uplink_bytes(kinds)
        uplinks = max((c * b for c, b in zip(self.uplink_cost, carried, strict=True)), default=0.0)
        return rounded(max(hosts, uplinks), sum(carried))


def rounded(largest: float, total: float) -> Cost:
    """A cost without the rounding errors of its last digits."""
    return round(largest, DIGITS), round(total, DIGITS)
