"""The optimization problem of placement in numbers: a kind of host for every position. Its lower bounds.

Smaller is better: first the largest time per byte of gradient of any link, then the bytes times uplinks crossed (a
host's own link carries its position's traffic at any position, so it adds a constant).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

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


def fewest_crossing(rings: Rings, nodes: int) -> float:
    """The fewest bytes per byte of gradient that leave any set of `nodes` positions of the grid.

    Exact for rings. For a torus it is the edge-isoperimetric argument of `_boundary`: a lower bound that whole rows,
    whole columns and rectangles attain. For three and more levels between the nodes it is the trivial bound 0.
    """
    if torus := rings.torus:
        return _boundary(*torus, nodes)
    if len(rings.dims) == 2:  # nodes span rows: the same argument for their ranks
        return _boundary(*rings.dims, rings.hop(0), rings.hop(1), nodes * rings.ranks_per_node)
    return 0.0


@cache
def _boundary(row: int, rows: int, row_hop: float, column_hop: float, chosen: int) -> float:
    """The least sum of hops leaving `chosen` cells of a torus with `rows` rings of `row` cells.

    At least one hop leaves each partly chosen row, and each partly chosen column. If there are both a full and an empty
    row, every column is cut, and also a row unless `chosen` is whole rows. If there is an empty row and no full row,
    all of the r >= 1 touched rows and k touched columns are cut, r k >= chosen. If every row is touched and none is
    full, all rows are cut, and also a column unless `chosen` is whole columns. The other cases mirror these: the cells
    not chosen.
    """
    if not 0 < chosen < row * rows:
        return 0.0
    return min(_half(row, rows, row_hop, column_hop, n) for n in (chosen, row * rows - chosen))


def _half(row: int, rows: int, row_hop: float, column_hop: float, chosen: int) -> float:
    cuts = [rows * row_hop + (column_hop if chosen % rows else 0.0)] if row > 1 else []
    if chosen >= row and rows > 1:
        cuts.append(row * column_hop + (row_hop if chosen % row else 0.0))
    for columns in range(1, row + 1):
        touched = -(-chosen // columns)
        if touched < rows:
            cuts.append(touched * (row_hop if row > 1 else 0.0) + columns * column_hop)
    return min(cuts, default=0.0)


def cut_bound_s_per_byte(tree: Fabric) -> float:
    """The least time per byte of gradient of any all-reduce, in any grid or scheme.

    k groups of hosts, each behind its own links, are k ranks: to know the sum of n bytes they must send 2 (k-1) n in
    total (Patarasuk and Yuan 2009; Chan et al. 2007 [from memory]), hence 2 (k-1) n / (the sum of their bandwidths).
    Each of two sides must send n, so a single link needs n / its bandwidth. Groups: the hosts; the switches of each
    depth if all hosts are below them; every uplink against the rest.
    """
    hosts = [tree.host_bytes_per_s[kind] for kind in tree.kinds]
    bounds = [1 / bandwidth for bandwidth in (*tree.uplink_bytes_per_s, *(hosts if len(hosts) > 1 else []))]
    for group in (hosts, *_covers(tree)):
        if len(group) > 1:
            bounds.append(2 * (len(group) - 1) / sum(group))
    return max(bounds, default=0.0)


def _covers(tree: Fabric) -> Iterator[list[float]]:
    """For every depth below the top, the uplinks at that depth, if every host is below such an uplink."""
    for depth in range(1, 1 + min((len(path) for path in tree.paths), default=0)):
        hosts_of = Counter(tree.paths[kind][-depth] for kind in tree.kinds)
        yield [tree.uplink_bytes_per_s[uplink] for uplink in hosts_of]
