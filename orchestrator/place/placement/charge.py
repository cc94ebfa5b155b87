"""Scores orders of hosts by what they are charged: the time of the run's own all-reduce.

The other searches minimize the loads of rings, which are computed fast. But NCCL may take trees, whose edges load other
uplinks and begin at another host, and phases follow one another. So the last orders are compared by the time itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torusrun.orchestrator.place.cost.algorithms import TORUS, cost_of
from torusrun.orchestrator.place.cost.all_reduce import Backend
from torusrun.orchestrator.place.hosts.model import Cluster
from torusrun.orchestrator.place.placement.rings import Rings
from torusrun.orchestrator.place.placement.timing import HostsLayout
from torusrun.training.recipe.train import SyncKeys

MOST = 150  # orders to time for one grid
POSITIONS = 2_000  # positions of all these orders together: the time of one is in proportion to its positions


@dataclass(frozen=True)
class Charge:
    """The all-reduce of a run: the bytes of its gradients, its library, and how it sums."""

    size_bytes: float
    backend: Backend
    sync: SyncKeys = TORUS

    def time_s(self, rings: Rings, cluster: Cluster, names: Sequence[str]) -> float:
        """Its seconds with the host `names[p]` on position p. Raises SiteError for unknown hosts."""
        layout = HostsLayout(cluster, names, rings.ranks_per_node, self.backend)
        return cost_of(self.sync, layout, rings.dims)(self.size_bytes)


def cheapest(
    starts: Sequence[list[int]], time_s: Callable[[Sequence[int]], float], *, improve: bool = True
) -> list[int]:
    """The kinds of the positions that take the least time: the best of `starts`, then improved by turns and exchanges.

    Ends if no step helps, or after MOST orders, fewer if they are long. Of equal orders the earlier one is returned.
    """
    most = min(MOST, POSITIONS // max(1, len(starts[0])))
    if most < 2:
        return starts[0]
    known: dict[tuple[int, ...], float] = {}

    def charged(kinds: Sequence[int]) -> float:
        key = tuple(kinds)
        if key not in known:
            known[key] = round(time_s(key), 12)
        return known[key]

    best = min(starts[:most], key=charged)
    better = improve
    while better:
        better = False
        for kinds in _neighbours(best):
            if len(known) >= most:
                return best
            if charged(kinds) < charged(best):
                best, better = kinds, True
    return best


def _neighbours(kinds: Sequence[int]) -> Iterator[list[int]]:
    """The order turned so that another leaf is first, reversed, and with two hosts exchanged."""
    places = range(len(kinds))
    for first in places:
        if first and kinds[first] != kinds[first - 1]:
            yield [*kinds[first:], *kinds[:first]]
    yield [*reversed(kinds)]
    for p in places:
        for q in places[p + 1 :]:
            if kinds[p] != kinds[q]:
                exchanged = list(kinds)
                exchanged[p], exchanged[q] = kinds[q], kinds[p]
                yield exchanged
