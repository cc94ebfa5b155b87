"""The best placement of a small problem, by branch and bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torusrun.orchestrator.place.placement.problem import Cost, PlacementProblem, rounded

LARGEST = 12  # positions
STEPS = 150_000  # tries; after them the best placement so far is returned


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
        """Kinds to try: one of each set of unused, interchangeable kinds; on a torus any kind can hold position 0."""
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
            for there, bytes_ in self.problem.rings.neighbours[here].items()
            if there < here
            for uplink in crossed[self.kinds[there]]
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
