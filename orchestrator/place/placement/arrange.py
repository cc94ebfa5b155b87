"""Orders the allocated hosts for the ranks, chooses the spares, and proves how good the order is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.place.cost.algorithms import TORUS, cost_of
from torusrun.orchestrator.place.cost.all_reduce import Backend
from torusrun.orchestrator.place.hosts.model import Cluster, Host
from torusrun.orchestrator.place.placement.construct import candidates, orders
from torusrun.orchestrator.place.placement.fabric import Loads, fabric, loads
from torusrun.orchestrator.place.placement.problem import Cost, PlacementProblem, cut_bound_s_per_byte
from torusrun.orchestrator.place.placement.rings import Rings
from torusrun.orchestrator.place.placement.search import LARGEST, anneal, descend, exact
from torusrun.orchestrator.place.placement.timing import HostsLayout
from torusrun.training.counted import counted
from torusrun.training.recipe.train import SyncKeys

EFFORT = 240_000  # pairs of positions to try, divided among starts and rounds
LARGE = 200  # positions; from here on a sixth of the effort is spent, because construction gives more
HUGE = 4096  # positions; from here on nothing is searched: so few exchanges would change little
WEIGHTS = (1.0, 3.0, 0.3, 10.0, 1.0, 3.0, 30.0, 1.0) * 2  # weight of the largest load against the total, in each round
MOST_TIMED = 150  # orders whose time is computed, for one grid
MOST_POSITIONS = 2_000  # of all these orders together: the time of an order is in proportion to its positions


@dataclass(frozen=True)
class Arrangement:
    """Hosts in an order, and two bounds in seconds per byte of gradient."""

    rings: Rings
    hosts: tuple[str, ...]  # in the order of the positions
    spares: tuple[str, ...]
    loads: Loads  # of their links
    grid_bound_s_per_byte: float  # for every placement of this grid
    cut_bound_s_per_byte: float  # for every all-reduce on these hosts
    optimal: bool  # no placement of this grid has a smaller largest load, or fewer hop-bytes with the same load

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
    broken hosts, then slow hosts, then those whose absence helps most. The same hosts, in any order, give the same
    answer. Raises SiteError if the hosts are too few, or one is not in the cluster.
    """
    rings = Rings(tuple(dims), ranks_per_node)
    known = cluster.in_order(hosts)
    tree = fabric(cluster, without_spares(rings, cluster, known))
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

    quickest = cheapest([kinds, *candidates(problem)], time_s, improve=effort > 0)
    return quickest, optimal and problem.cost(quickest) == problem.cost(kinds)


def _search(problem: PlacementProblem, starts: Sequence[list[int]], effort: int) -> tuple[list[int], bool]:
    """Improve several starts until a solution meets the bound or `effort` is spent."""
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


@dataclass(frozen=True)
class Charge:
    """The all-reduce of a run: the bytes of its gradients, its library, and how it sums.

    The searches minimize the loads of rings, which are computed fast. But NCCL may take trees, whose edges load other
    uplinks and begin at another host, and phases follow one another. So the last orders are compared by this time.
    """

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

    Ends if no step helps, or after MOST_TIMED orders, fewer if they are long. Of equal orders the earlier counts.
    """
    most = min(MOST_TIMED, MOST_POSITIONS // max(1, len(starts[0])))
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


def without_spares(rings: Rings, cluster: Cluster, hosts: Sequence[Host]) -> list[Host]:
    """As many hosts as there are positions, in the given order.

    Removed are hosts with too few working GPUs, then hosts with a slow link. Among several choices, the hosts with
    the cheapest placement by construction are taken. Raises SiteError if too few hosts are usable.
    """
    whole = [host for host in hosts if host.gpus >= rings.ranks_per_node]
    spare = len(whole) - rings.positions
    if spare < 0:
        broken = [host.name for host in hosts if host.gpus < rings.ranks_per_node]
        lame = f"; fewer than {counted(rings.ranks_per_node, 'GPU')} work on {', '.join(broken)}" if broken else ""
        raise SiteError(f"the grid needs {counted(rings.positions, 'host')}, {len(whole)} are usable{lame}")
    if spare == 0:
        return whole
    best, least = whole, (float("inf"), 0.0)
    for chosen in _choices(rings, whole, spare):
        problem = PlacementProblem(rings, fabric(cluster, chosen))
        if _in_s(problem, problem.bound) >= least:
            continue  # no placement of these hosts is cheaper
        cost_s = _in_s(problem, min(map(problem.cost, candidates(problem))))
        if cost_s < least:
            best, least = chosen, cost_s
    return best


def _in_s(problem: PlacementProblem, cost: Cost) -> tuple[float, float]:
    """A cost whose first number is in seconds, as those of other hosts."""
    return cost[0] * problem.unit_s, cost[1]


def _choices(rings: Rings, hosts: Sequence[Host], spare: int) -> Iterator[list[Host]]:
    """Leave out slow hosts, then whole leaves, smallest first; or keep rows whole; or take one leaf's hosts."""
    on = Counter(host.leaf for host in hosts)
    row = rings.torus[0] if rings.torus else 1

    def without(rank: Callable[..., tuple[int, ...]]) -> list[Host]:
        out = sorted(hosts, key=lambda host: (host.network.bandwidth_bytes_per_s, rank(host)))[:spare]
        names = {host.name for host in out}
        return [host for host in hosts if host.name not in names]

    yield without(lambda host: (on[host.leaf],))
    yield without(lambda host: (on[host.leaf] % row or row,))
    for leaf in on if len(on) <= 40 else ():
        yield without(lambda host, leaf=leaf: (host.leaf != leaf, on[host.leaf]))
