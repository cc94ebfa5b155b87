"""Searches for the best placement: local search, and for a small problem branch and bound, which proves it.

The local search exchanges the hosts of two positions while that lowers the cost. Most exchanges do not change the
largest load. So it minimizes another function: the weighted excess of each uplink's load over a floor, plus the bytes
over all uplinks. With the bound as floor, it lowers the largest load; with the largest load as floor, the total. The
result is the cheapest solution that it met, by the real cost.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from torusrun.orchestrator.place.placement.problem import Cost, PlacementProblem, rounded

STRICT = 1000.0  # weight of the excess over the floor, against the total
LARGEST = 12  # positions of a problem for branch and bound
STEPS = 150_000  # tries of branch and bound; after them the best placement so far is returned


class Swapper:
    """A solution, its loads, and the effect of an exchange."""

    def __init__(self, problem: PlacementProblem, kinds: Sequence[int], floor: float, weight: float) -> None:
        self.problem, self.kinds = problem, list(kinds)
        self.crossed, self.beside = problem.fabric.crossed, problem.rings.neighbours
        self.carried = problem.uplink_bytes(kinds)
        self.cost, self.floor, self.weight = problem.uplink_cost, floor, weight
        self.host_cost, self.egress = problem.host_cost, problem.egress
        self.alike = len(set(problem.host_cost)) == 1

    def real_cost(self) -> Cost:
        """The cost of the solution; from the stored loads if all hosts' links are equal."""
        if not self.alike:
            return self.problem.cost(self.kinds)
        largest = max((c * b for c, b in zip(self.cost, self.carried, strict=True)), default=0.0)
        return rounded(max(self.problem.host_bound, largest), sum(self.carried))

    def changes(self, p: int, q: int) -> dict[int, float]:
        """The change of the bytes over every uplink if p and q exchange their hosts."""
        kinds, delta = self.kinds, dict[int, float]()
        for here, other, old, new in ((p, q, kinds[p], kinds[q]), (q, p, kinds[q], kinds[p])):
            before, after = self.crossed[old], self.crossed[new]
            for neighbour, bytes_ in self.beside[here].items():
                if neighbour == other:
                    continue
                kind = kinds[neighbour]
                for uplink in before[kind]:
                    delta[uplink] = delta.get(uplink, 0.0) - bytes_
                for uplink in after[kind]:
                    delta[uplink] = delta.get(uplink, 0.0) + bytes_
        return delta

    def gain(self, p: int, q: int, delta: dict[int, float]) -> float:
        """The decrease of the search's function by the exchange."""
        gain = 0.0
        for uplink, bytes_ in delta.items():
            carried, cost = self.carried[uplink], self.cost[uplink]
            gain += self._excess(carried * cost) - self._excess((carried + bytes_) * cost) - bytes_
        if self.host_cost[self.kinds[p]] != self.host_cost[self.kinds[q]] and self.egress[p] != self.egress[q]:
            a, b = self.host_cost[self.kinds[p]], self.host_cost[self.kinds[q]]
            gain += self._excess(a * self.egress[p]) + self._excess(b * self.egress[q])
            gain -= self._excess(b * self.egress[p]) + self._excess(a * self.egress[q])
        return gain

    def _excess(self, cost: float) -> float:
        over = (cost - self.floor) / self.floor if cost > self.floor > 0 else 0.0
        return self.weight * (over + over * over * over * over)

    def exchange(self, p: int, q: int, delta: dict[int, float]) -> None:
        self.kinds[p], self.kinds[q] = self.kinds[q], self.kinds[p]
        for uplink, bytes_ in delta.items():
            self.carried[uplink] += bytes_


def descend(problem: PlacementProblem, kinds: Sequence[int], tries: int) -> list[int]:
    """Exchange pairs on the borders between leaves until no exchange helps, or after `tries` pairs."""
    state = Swapper(problem, kinds, problem.bound[0], STRICT)
    best, best_cost = list(kinds), problem.cost(kinds)
    improved = True
    while improved and tries > 0:
        improved = False
        for p, q in _pairs(state):
            tries -= 1
            if state.kinds[p] == state.kinds[q]:
                continue
            delta = state.changes(p, q)
            if state.gain(p, q, delta) > 1e-12:
                state.exchange(p, q, delta)
                improved = True
            if tries <= 0:
                break
        if improved and (cost := state.real_cost()) < best_cost:
            best, best_cost = list(state.kinds), cost
    return best


def _pairs(state: Swapper) -> Iterator[tuple[int, int]]:
    """Pairs of positions whose exchange can help: both beside another kind of host, the hottest leaves first."""
    border = [p for p, near in enumerate(state.beside) if any(state.kinds[q] != state.kinds[p] for q in near)]
    paths = state.problem.fabric.paths
    heat = [max((state.carried[u] * state.cost[u] for u in path), default=0.0) for path in paths]
    border.sort(key=lambda p: -heat[state.kinds[p]])
    return ((p, q) for i, p in enumerate(border) for q in border[i + 1 :])


def anneal(
    problem: PlacementProblem, kinds: Sequence[int], tries: int, seed: int, floor: float, weight: float
) -> list[int]:
    """Random exchanges, also for the worse while it is warm; every fourth seed starts cooler, so nearer to `kinds`.

    An exchange gives a position a host of a neighbour's kind. The same seed gives the same result.
    """
    chance = random.Random(seed)
    state = Swapper(problem, kinds, floor, weight)
    near = [list(neighbours) for neighbours in state.beside]
    places = [[p for p, k in enumerate(kinds) if k == kind] for kind in range(len(problem.fabric.paths))]
    best, best_cost = list(kinds), problem.cost(kinds)
    hops = [bytes_ for near in state.beside for bytes_ in near.values()]
    warm = max(hops) / (8 if seed % 4 == 3 else 1)
    cooling = (min(hops) / warm / 8) ** (1 / tries)
    for _ in range(tries):
        warm *= cooling
        p = chance.randrange(len(kinds))
        wanted = state.kinds[chance.choice(near[p])]
        if wanted == state.kinds[p]:
            continue
        q = chance.choice(places[wanted])
        delta = state.changes(p, q)
        gain = state.gain(p, q, delta)
        if gain >= 0 or chance.random() < 2.0 ** (gain / warm):
            places[wanted][places[wanted].index(q)] = p
            places[state.kinds[p]][places[state.kinds[p]].index(p)] = q
            state.exchange(p, q, delta)
            if gain > 0 and (cost := state.real_cost()) < best_cost:
                best, best_cost = list(state.kinds), cost
    return best


def exact(problem: PlacementProblem, incumbent: Sequence[int]) -> tuple[list[int], bool]:
    """(The cheapest kinds, whether all others were ruled out); `incumbent` is the placement to beat."""
    search = _Search(problem, incumbent)
    search.descend()
    return search.best, search.steps < STEPS


class _Search:
    """Fills positions in order; drops a partial placement whose lower bound is no better than the best so far."""

    def __init__(self, problem: PlacementProblem, incumbent: Sequence[int]) -> None:
        self.problem = problem
        self.best, self.best_cost = list(incumbent), problem.cost(incumbent)
        self.kinds: list[int] = []
        self.left = list(problem.fabric.counts)
        self.carried = [0.0] * len(problem.fabric.uplinks)
        self.hosts = [problem.host_bound]
        self.steps = 0
        self.alike = _alike(problem)

    def descend(self) -> None:
        if len(self.kinds) == self.problem.rings.positions:
            cost = self.problem.cost(self.kinds)
            if cost < self.best_cost:
                self.best, self.best_cost = list(self.kinds), cost
            return
        for kind in self._choices():
            if self.steps >= STEPS or self.best_cost == self.problem.bound:
                return
            self.steps += 1
            added = self._put(kind)
            if self._least() < self.best_cost:
                self.descend()
            self._take(kind, added)

    def _choices(self) -> Iterator[int]:
        """Kinds to try: one kind of each set of unused, interchangeable kinds; on a torus any kind for position 0."""
        if not self.kinds and self.problem.rings.torus:
            yield max(range(len(self.left)), key=self.left.__getitem__)
            return
        tried = set()
        for kind, left in enumerate(self.left):
            if left == self.problem.fabric.counts[kind]:
                if self.alike[kind] in tried:
                    continue
                tried.add(self.alike[kind])
            if left:
                yield kind

    def _put(self, kind: int) -> list[tuple[int, float]]:
        """Put `kind` on the next position; return the bytes added to each uplink."""
        here, crossed = len(self.kinds), self.problem.fabric.crossed[kind]
        added = [
            (uplink, bytes_)
            for neighbour, bytes_ in self.problem.rings.neighbours[here].items()
            if neighbour < here
            for uplink in crossed[self.kinds[neighbour]]
        ]
        for uplink, bytes_ in added:
            self.carried[uplink] += bytes_
        self.kinds.append(kind)
        self.left[kind] -= 1
        self.hosts.append(max(self.hosts[-1], self.problem.egress[here] * self.problem.host_cost[kind]))
        return added

    def _take(self, kind: int, added: list[tuple[int, float]]) -> None:
        self.hosts.pop()
        self.left[kind] += 1
        self.kinds.pop()
        for uplink, bytes_ in added:
            self.carried[uplink] -= bytes_

    def _least(self) -> Cost:
        """A lower bound of the cost of every completion of this partial placement."""
        carried = [max(c, f) for c, f in zip(self.carried, self.problem.fewest, strict=True)]
        largest = max((u * c for u, c in zip(self.problem.uplink_cost, carried, strict=True)), default=0.0)
        return rounded(max(self.hosts[-1], largest), sum(carried))


def _alike(problem: PlacementProblem) -> list[object]:
    """A mark for every kind; kinds with equal marks are interchangeable as a whole."""
    fabric = problem.fabric
    marks: list[object] = []
    for kind, path in enumerate(fabric.paths):
        alone = len(path) == 1 and fabric.below[path[0]] == fabric.counts[kind]
        cost = problem.uplink_cost[path[0]] if alone else None
        marks.append((fabric.counts[kind], problem.host_cost[kind], cost) if alone else kind)
    return marks
