"""The network for the cost formulas: levels of links, from inside a node outwards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, prod


@dataclass(frozen=True)
class Level:
    """One kind of link: `members` units (GPUs, then nodes, then racks) meet here, each over its own link."""

    name: str
    members: int
    bandwidth_bytes_per_s: float  # of one member's link, one direction
    latency_s: float  # of one step across the link
    sharing: int = 1  # ranks behind one link that may send at the same time

    def share_bytes_per_s(self, flows: int) -> float:
        """The bandwidth that each of `flows` gets on a member's link: an equal part."""
        return self.bandwidth_bytes_per_s / max(1, min(flows, self.sharing))


@dataclass(frozen=True)
class Network:
    """Levels from the innermost to the outermost; ranks are numbered along them (node-major order)."""

    levels: tuple[Level, ...]
    used: int = 0  # ranks, if they do not fill the outermost units; 0 for all
    compute_capability: int = 80  # of the GPUs, 70 for sm_70; 80 if unknown

    @property
    def ranks(self) -> int:
        return self.used or prod(level.members for level in self.levels)

    def unit_ranks(self, index: int) -> int:
        """Ranks behind one link of level `index`."""
        return prod(level.members for level in self.levels[:index])

    def holding(self, ranks: int) -> Network:
        """The smallest part of this network with room for `ranks`; the outermost level grows as needed."""
        kept: list[Level] = []
        units = ranks
        for index, level in enumerate(self.levels):
            last = index == len(self.levels) - 1
            kept.append(replace(level, members=units if last else min(level.members, units)))
            units = ceil(units / level.members)
            if units <= 1:
                break
        return replace(self, levels=tuple(kept), used=ranks)
