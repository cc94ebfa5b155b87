"""Orders the allocated hosts for the ranks, and proves how good the order is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.place.hosts.model import Cluster
from torusrun.orchestrator.place.placement.bound import cut_bound_s_per_byte
from torusrun.orchestrator.place.placement.charge import Charge, cheapest
from torusrun.orchestrator.place.placement.construct import candidates, orders
from torusrun.orchestrator.place.placement.exact import LARGEST, exact
from torusrun.orchestrator.place.placement.fabric import fabric
from torusrun.orchestrator.place.placement.load import Loads, loads
from torusrun.orchestrator.place.placement.problem import PlacementProblem
from torusrun.orchestrator.place.placement.rings import Rings
from torusrun.orchestrator.place.placement.search import anneal, descend
from torusrun.orchestrator.place.placement.spares import without_spares
from torusrun.training.counted import counted

EFFORT = 240_000  # pairs of positions to try, divided among starts and rounds
LARGE = 200  # positions; from here on a sixth of the effort is spent, because construction gives more
HUGE = 4096  # positions; from here on nothing is searched: so few exchanges would change little
WEIGHTS = (1.0, 3.0, 0.3, 10.0, 1.0, 3.0, 30.0, 1.0) * 2  # weight of the largest load against the total, in each round


@dataclass(frozen=True)
class Arrangement:
    """Hosts in the order of the positions, the loads of their links, and two bounds in seconds per byte of gradient.

    `grid_bound_s_per_byte` holds for every placement of this grid, `cut_bound_s_per_byte` for every all-reduce on these
    hosts. `optimal`: no placement of this grid has a smaller largest load, or fewer hop-bytes with the same load.
    """

    rings: Rings
    hosts: tuple[str, ...]
    spares: tuple[str, ...]
    loads: Loads
    grid_bound_s_per_byte: float
    cut_bound_s_per_byte: float
    optimal: bool

    @property
    def over_bound(self) -> float:
        """The largest load as a multiple of the grid's bound; 1 is proved minimal."""
        return self.loads.largest_s_per_byte / self.grid_bound_s_per_byte if self.grid_bound_s_per_byte else 1.0


def arrange(
    dims: Sequence[int],
    hosts: Sequence[str],
    ranks_per_node: int,
    cluster: Cluster,
    effort: int = EFFORT,
    charge: Charge | None = None,
) -> Arrangement:
    """Order `hosts` for a grid of `dims`: first the smallest largest link load, then the fewest hop-bytes.

    With a `charge`, the last orders are compared by its time. Hosts that the grid does not need are spares: first
    broken hosts, then slow ones, then those whose absence helps most. The same hosts, in any order, give the same
    answer. Raises SiteError if there are too few, or one is not in the cluster.
    """
    rings = Rings(tuple(dims), ranks_per_node)
    known = cluster.in_order(hosts)
    chosen = without_spares(rings, cluster, known)
    tree = fabric(cluster, chosen)
    problem = PlacementProblem(rings, tree)
    kinds, optimal = solve(problem, effort)
    if charge:
        kinds, optimal = _charged(problem, cluster, charge, kinds, optimal, effort)
    order = tuple(host.name for host in tree.order(kinds))
    placed = set(order)
    spares = tuple(host.name for host in known if host.name not in placed)
    if len(order) != rings.positions:
        raise SiteError(
            f"a grid of {'x'.join(map(str, dims))} needs {counted(rings.positions, 'host')}, not {len(order)}"
        )
    bound_s = problem.bound[0] * problem.unit_s
    return Arrangement(
        rings, order, spares, loads(rings.levels, cluster, order), bound_s, cut_bound_s_per_byte(tree), optimal
    )  # fmt: skip


def solve(problem: PlacementProblem, effort: int = EFFORT) -> tuple[list[int], bool]:
    """(The kinds of the positions, whether they are proved the best); with no effort, by construction only."""
    starts: list[list[int]] = []
    for kinds in candidates(problem):
        if problem.cost(kinds) == problem.bound:
            return kinds, True
        if kinds not in starts:
            starts.append(kinds)
    tries = effort // (20 * problem.rings.positions)
    starts = sorted([*starts, *orders(problem, min(tries, 200))], key=problem.cost)
    best = starts[0]
    if not effort or problem.rings.positions >= HUGE:
        return best, False
    if problem.rings.positions <= LARGEST:
        best, proved = exact(problem, best)
        if proved:
            return best, True
    share = effort if problem.rings.positions < LARGE else effort // 6
    return _search(problem, [best, *starts[1:4]], share)


def _charged(
    problem: PlacementProblem, cluster: Cluster, charge: Charge, kinds: list[int], optimal: bool, effort: int
) -> tuple[list[int], bool]:
    """The order that takes the least time, and whether it still has the least loads of links."""

    def time_s(order: Sequence[int]) -> float:
        return charge.time_s(problem.rings, cluster, [host.name for host in problem.fabric.order(order)])

    found = cheapest([kinds, *candidates(problem)], time_s, improve=effort > 0)
    return found, optimal and problem.cost(found) == problem.cost(kinds)


def _search(problem: PlacementProblem, starts: Sequence[list[int]], effort: int) -> tuple[list[int], bool]:
    """Improve several starts until one meets the bound or `effort` is spent."""
    share = effort // len(WEIGHTS)
    best = min((descend(problem, start, share // 2) for start in starts), key=problem.cost)
    for i, weight in enumerate(WEIGHTS):
        largest, _ = problem.cost(best)
        if problem.cost(best) == problem.bound:
            return best, True
        floor = problem.bound[0] if i % 4 < 2 else largest
        warm = anneal(problem, best, share, i, floor, weight)
        best = min(best, descend(problem, warm, share // 8), key=problem.cost)
    return best, problem.cost(best) == problem.bound
