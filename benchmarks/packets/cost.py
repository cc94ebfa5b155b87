"""The seconds of the torus over gloo by simulation, as a function of bytes like the formulas of `network.cost`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

from benchmarks.packets.schedule import ITEM_BYTES, Job, torus
from benchmarks.packets.simulate import Placed
from benchmarks.packets.stream import PACKET_BYTES
from orchestrator.network.placement.timing import HostsLayout

MOST_RANKS = 64
MOST_PACKETS = 20_000  # of a simulation, before each link is counted; larger vectors get larger packets
SIZES_BYTES = tuple(float(1024 * 4**k) for k in range(13))  # up to 16 GiB


def simulated(layout: HostsLayout, dims: Sequence[int]) -> SimulatedTime | None:
    """The simulation in place of `layout.torus(dims)`; None if that is NCCL's, or has more than 64 ranks."""
    if layout.backend != "gloo" or layout.ranks > MOST_RANKS:
        return None
    return SimulatedTime(Placed(layout.cluster, layout.names, layout.ranks_per_node), tuple(dims))


@dataclass(frozen=True)
class SimulatedTime:
    """Converts bytes to seconds: simulates a few sizes, each once, and is linear between them."""

    placed: Placed
    dims: tuple[int, ...]
    _known: dict[float, float] = field(default_factory=dict, compare=False)

    def __call__(self, size_bytes: float) -> float:
        at = min(max(bisect_right(SIZES_BYTES, size_bytes), 1), len(SIZES_BYTES) - 1)
        low, high = SIZES_BYTES[at - 1 : at + 1]
        low_s, high_s = self._at(low), self._at(high)
        return low_s + (max(size_bytes, low) - low) * max(0.0, high_s - low_s) / (high - low)

    def simulate_s(self, size_bytes: float) -> float:
        """The second of two rounds: connections have grown their windows in the first. Raises SiteError."""
        elements = -(-int(size_bytes / ITEM_BYTES) // prod(self.dims)) * prod(self.dims)
        packet_bytes = max(PACKET_BYTES, 2 * size_bytes * self.placed.ranks / MOST_PACKETS)
        placed, carriers = replace(self.placed, packet_bytes=packet_bytes), 2 * len(self.dims) + 1
        jobs = [Job(0.0, elements)]
        return placed.rounds_s(lambda gloo, rank: torus(gloo, self.dims, rank, jobs, carriers), 2)[1]

    def _at(self, size_bytes: float) -> float:
        if size_bytes not in self._known:
            self._known[size_bytes] = self.simulate_s(size_bytes)
        return self._known[size_bytes]
