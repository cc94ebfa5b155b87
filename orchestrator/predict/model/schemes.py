"""The all-reduce schemes by name, as functions of bytes, one phase after the other; the best shape of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from torusrun.orchestrator.place.cost import regular
from torusrun.orchestrator.place.cost.all_reduce import Cost
from torusrun.orchestrator.place.cost.links import Network
from torusrun.orchestrator.place.cost.nccl import Algorithm
from torusrun.orchestrator.place.cost.shapes import divisors, shapes
from torusrun.orchestrator.predict.model.collectives import halving_s, leaders_s

FAR_BYTES = 1e9
RING: tuple[Algorithm, ...] = ("ring",)
BOTH: tuple[Algorithm, ...] = ("ring", "tree")


def affine(cost_s: Cost) -> Cost:
    """The same cost, as a + b n, so that the network is not walked again for every n."""
    start_s = cost_s(0.0)
    byte_s = (cost_s(FAR_BYTES) - start_s) / FAR_BYTES
    return lambda size_bytes: start_s + byte_s * size_bytes


def torus(network: Network, dims: tuple[int, ...], algorithms: tuple[Algorithm, ...] = BOTH) -> Cost:
    """The torus of one to three levels."""
    return regular.all_reduce(network, dims, "nccl", algorithms).unchunked_s


# The schemes without a shape.
FLAT: dict[str, Callable[[Network], Cost]] = {
    "ring": lambda network: torus(network, (network.ranks,), RING),  # NCCL's
    "tree": lambda network: torus(network, (network.ranks,), ("tree",)),  # NCCL's
    "nccl": lambda network: torus(network, (network.ranks,)),  # its choice from 2.4 on, by size
    # A ring without NCCL's protocols: 2(N-1) a + 2(N-1)/N n/B (Patarasuk and Yuan, 2009, from memory).
    "plain": lambda network: affine(lambda size: regular.ring_s(size, network)),
    "halving": lambda network: affine(lambda size: halving_s(size, network)),
    "leaders": lambda network: affine(lambda size: leaders_s(size, network)),
}


@dataclass(frozen=True)
class Scheme:
    """One way to sum gradients over all ranks of a network."""

    name: str
    dims: tuple[int, ...]
    cost_s: Cost

    def __str__(self) -> str:
        return f"{self.name} {'x'.join(map(str, self.dims))}" if self.dims else self.name


def grid(network: Network, dims: tuple[int, ...], algorithms: tuple[Algorithm, ...] = BOTH) -> Scheme:
    return Scheme("torus", dims, torus(network, dims, algorithms))


def best_grid(network: Network, size_bytes: float, algorithms: tuple[Algorithm, ...] = BOTH) -> Scheme:
    """The X x Y with the least time for one all-reduce of `size_bytes`, both at least 2 if possible."""
    ranks = network.ranks
    rows = divisors(ranks)[1:-1] or divisors(ranks)
    return _best((grid(network, (x, ranks // x), algorithms) for x in rows), size_bytes)


def best_levels(network: Network, size_bytes: float) -> Scheme:
    """The best grid of three levels; of two or one if the number of ranks lacks three factors."""
    every = shapes(network.ranks)  # those of most levels last
    found = _best((grid(network, dims) for dims in every if len(dims) == len(every[-1])), size_bytes)
    return replace(found, name="levels")


def _best(schemes: Iterator[Scheme], size_bytes: float) -> Scheme:
    return min(schemes, key=lambda scheme: scheme.cost_s(size_bytes))
