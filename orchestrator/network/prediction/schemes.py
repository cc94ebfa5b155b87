"""The all-reduce schemes by name, as functions of bytes, one phase after the other; the best shape of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.network.cost import regular
from orchestrator.network.cost.all_reduce import Cost
from orchestrator.network.cost.links import Network
from orchestrator.network.cost.nccl import Algorithm
from orchestrator.network.cost.shapes import divisors, shapes
from orchestrator.network.prediction.collectives import halving, hierarchical

FAR_BYTES = 1e9
RING: tuple[Algorithm, ...] = ("ring",)
TREE: tuple[Algorithm, ...] = ("tree",)
BOTH: tuple[Algorithm, ...] = ("ring", "tree")


def affine(cost_s: Cost) -> Cost:
    """The same cost, as a + b n, so that the network is not walked again for every n."""
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
    """NCCL's ring."""
    return Scheme("ring", (), regular.all_reduce(network, (network.ranks,), "nccl", RING).unchunked_s)


def double_tree(network: Network) -> Scheme:
    """NCCL's tree."""
    return Scheme("tree", (), regular.all_reduce(network, (network.ranks,), "nccl", TREE).unchunked_s)


def nccl(network: Network) -> Scheme:
    """The choice of NCCL 2.4 and later: a flat ring or the double tree, by size."""
    return Scheme("nccl", (), regular.all_reduce(network, (network.ranks,), "nccl").unchunked_s)


def plain_ring(network: Network) -> Scheme:
    """A ring without NCCL's protocols: 2(N-1) a + 2(N-1)/N n/B (Patarasuk and Yuan, 2009, from memory)."""
    return Scheme("plain", (), affine(lambda size: regular.ring_s(size, network)))


def halving_doubling(network: Network) -> Scheme:
    return Scheme("halving", (), affine(lambda size: halving.all_reduce_s(size, network)))


def leaders(network: Network) -> Scheme:
    return Scheme("leaders", (), affine(lambda size: hierarchical.all_reduce_s(size, network)))


def grid(network: Network, dims: tuple[int, ...], algorithms: tuple[Algorithm, ...] = BOTH) -> Scheme:
    """The torus of one to three levels."""
    return Scheme("torus", dims, regular.all_reduce(network, dims, "nccl", algorithms).unchunked_s)


def best_grid(network: Network, size_bytes: float, algorithms: tuple[Algorithm, ...] = BOTH) -> Scheme:
    """The X x Y with the least time for one all-reduce of `size_bytes`, both at least 2 if possible."""
    ranks = network.ranks
    rows = divisors(ranks)[1:-1] or divisors(ranks)
    return _best((grid(network, (x, ranks // x), algorithms) for x in rows), size_bytes)


def best_levels(network: Network, size_bytes: float) -> Scheme:
    """The best grid of three levels; of two or one if the number of ranks lacks three factors."""
    every = shapes(network.ranks)
    deepest = max(map(len, every))
    found = _best((grid(network, dims) for dims in every if len(dims) == deepest), size_bytes)
    return Scheme("levels", found.dims, found.cost_s)


def _best(schemes: Iterator[Scheme], size_bytes: float) -> Scheme:
    return min(schemes, key=lambda scheme: scheme.cost_s(size_bytes))
