"""The all-reduce schemes by name, as one function of bytes; and the best shape of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from orchestrator.predict.collectives import halving, hierarchical, levels, ring, torus, tree
from orchestrator.predict.collectives.links import chain
from orchestrator.predict.network import Network

Cost = Callable[[float], float]
FAR_BYTES = 1e9


def affine(cost_s: Cost) -> Cost:
    """The same cost, a + b n for every scheme here, without walking the network again for every n."""
    start_s = cost_s(0.0)
    byte_s = (cost_s(FAR_BYTES) - start_s) / FAR_BYTES
    return lambda size_bytes: start_s + byte_s * size_bytes


@dataclass(frozen=True)
class Scheme:
    """One way to sum gradients over all ranks of a network."""

    name: str
    dims: tuple[int, ...]
    cost_s: Cost

    def __str__(self) -> str:
        return f"{self.name} {'x'.join(map(str, self.dims))}" if self.dims else self.name


def flat_ring(network: Network) -> Scheme:
    along = chain(network, network.ranks)
    return Scheme("ring", (), affine(lambda size: ring.all_reduce_s(size, along)))


def double_tree(network: Network) -> Scheme:
    return Scheme("tree", (), affine(lambda size: tree.all_reduce_s(size, network)))


def halving_doubling(network: Network) -> Scheme:
    return Scheme("halving", (), affine(lambda size: halving.all_reduce_s(size, network)))


def leaders(network: Network) -> Scheme:
    return Scheme("leaders", (), affine(lambda size: hierarchical.all_reduce_s(size, network)))


def grid(network: Network, x: int, y: int, column: torus.Column = "best") -> Scheme:
    if column == "best":
        rings, trees = grid(network, x, y, "ring").cost_s, grid(network, x, y, "tree").cost_s
        return Scheme("torus", (x, y), lambda size: min(rings(size), trees(size)))
    return Scheme("torus", (x, y), affine(lambda size: torus.all_reduce_s(size, network, x, y, column)))


def nccl(network: Network) -> Scheme:
    """What NCCL 2.4 and later choose from: a flat ring or the double tree, by size."""
    rings, trees = flat_ring(network).cost_s, double_tree(network).cost_s
    return Scheme("nccl", (), lambda size: min(rings(size), trees(size)))


def cascade(network: Network, dims: tuple[int, ...]) -> Scheme:
    return Scheme("levels", dims, affine(lambda size: levels.all_reduce_s(size, network, dims)))


def best_grid(network: Network, size_bytes: float, column: torus.Column = "best") -> Scheme:
    """The X x Y with the least time for one all-reduce of `size_bytes`, two or more each way where that is possible."""
    ranks = network.ranks
    rows = divisors(ranks)[1:-1] or divisors(ranks)
    return _best((grid(network, x, ranks // x, column) for x in rows), size_bytes)


def best_cascade(network: Network, size_bytes: float) -> Scheme:
    """The best three levels with ring stages."""
    ranks = network.ranks
    shapes = ((a, b, ranks // (a * b)) for a in divisors(ranks) for b in divisors(ranks // a))
    return _best((cascade(network, shape) for shape in shapes), size_bytes)


def divisors(number: int) -> list[int]:
    """All of them, in order."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return small + [number // d for d in reversed(small) if d * d != number]


def _best(schemes: Iterator[Scheme], size_bytes: float) -> Scheme:
    return min(schemes, key=lambda scheme: scheme.cost_s(size_bytes))
