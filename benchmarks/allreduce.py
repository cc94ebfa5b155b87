"""All-reduces over gloo on shaped racks: the torus with two and three levels, and gloo's own, against the cut bound.

`python -m benchmarks.allreduce [ROUNDS]` as root. The bound is that of the busiest cut: at a cut of k equal links,
2 (k-1)/k of the vector must pass each link, and headers take 4.4 % of the link's rate. Sent bytes are the kernel's
counts on the first node's link and the first rack's uplink, in vectors. Node names alternate between the racks, as
with a scheduler that fills racks in turn.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from benchmarks.shaped_racks import ShapedRacks
from benchmarks.shaped_ranks import times_s, together
from torusrun.training.collectives import chunks
from torusrun.training.collectives.all_reduce import build

NODE_BITS_PER_S = 50e6
PAYLOAD = 1448 / 1514  # share of the bytes on a link
ELEMENTS = 1_000_000  # of 4 bytes
BYTES = 4 * ELEMENTS
chunks.SMALLEST_CHUNK_BYTES = 64 * 1024  # the vector is 1/25 of ResNet-50's gradients, the link 1/200 of 10 Gbit/s
ONE_RACK = {"ra": ["n1", "n2", "n3", "n4"]}
TWO_RACKS = {"ra": ["n1", "n3"], "rb": ["n2", "n4"]}

Reduce = Callable[[torch.Tensor], object]


@dataclass(frozen=True)
class Case:
    """An algorithm on hosts in an order; `best` if the order is the network's."""

    title: str
    make: Callable[[], Reduce]
    best: bool = True


@dataclass(frozen=True)
class Fabric:
    racks: Mapping[str, Sequence[str]]
    per_node: int
    uplink_bits_per_s: float

    @property
    def best(self) -> list[str]:
        return [node for nodes in self.racks.values() for node in nodes]

    @property
    def bound_s(self) -> float:
        cuts = [(len(self.best), NODE_BITS_PER_S), (len(self.racks), self.uplink_bits_per_s)]
        return max(2 * (k - 1) / k * BYTES * 8 / rate for k, rate in cuts) / PAYLOAD

    def __str__(self) -> str:
        shape = f"{len(self.racks)} rack x {len(self.best) // len(self.racks)} nodes x {self.per_node} ranks"
        share = NODE_BITS_PER_S / self.uplink_bits_per_s
        return shape if len(self.racks) == 1 else f"{shape}, uplinks {share:.0f}:1"


def stock() -> Reduce:
    return dist.all_reduce


def by_torus(*dims: int, serial: bool = False) -> Callable[[], Reduce]:
    def make() -> Reduce:
        if serial:
            chunks.MOST_DOUBLINGS = 0
        return build("torus", dims).mean_

    return make


def hierarchical(*dims: int) -> Callable[[], Reduce]:
    return lambda: build("hierarchical", dims).mean_


def measure(lab: ShapedRacks, order: Sequence[str], per_node: int, make: Callable[[], Reduce], rounds: int) -> Measured:
    """The median time of an all-reduce until the last rank has it, and the bytes on the first links for each."""

    def reduce(rank: int) -> list[float]:
        act, ranks, vector = make(), len(order) * per_node, torch.empty(ELEMENTS)
        found_s = times_s(lambda: act(vector), rounds, lambda: vector.fill_(rank))
        total = ranks * (ranks - 1) / 2
        assert vector[0] == vector[-1] and vector[0] in (total, total / ranks), "a wrong sum"
        return found_s

    before = sent(lab)
    found_s = together(lab, order, per_node, reduce)
    node, uplink = (
        (after - at_first) / (rounds + 1) / BYTES for at_first, after in zip(before, sent(lab), strict=True)
    )
    return Measured(statistics.median(found_s), node, uplink)


@dataclass(frozen=True)
class Measured:
    time_s: float
    node_vectors: float
    uplink_vectors: float


def sent(lab: ShapedRacks) -> tuple[float, float]:
    """The bytes that the first node and the first rack have sent."""
    rack, nodes = next(iter(lab.racks.items()))
    return counted(lab.namespace(nodes[0]), "eth0"), counted(f"/run/netns/{lab.fabric}", f"u{rack}")


def counted(namespace: str, device: str) -> float:
    command = ["ip", "-n", namespace.rpartition("/")[2], "-json", "-s", "link", "show", device]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(json.loads(said)[0]["stats64"]["tx"]["bytes"])


def compare(fabric: Fabric, cases: Sequence[Case], rounds: int) -> None:
    print(f"\n{fabric}; bound {fabric.bound_s * 1e3:.0f} ms")
    print(f"  {'':34}{'ms':>7}{'x bound':>9}{'gain best':>11}{'gain sched.':>12}{'node sent':>11}{'uplink sent':>12}")
    with ShapedRacks(fabric.racks, NODE_BITS_PER_S, fabric.uplink_bits_per_s) as lab:
        stock_s: dict[bool, float] = {}
        for case in cases:
            order = fabric.best if case.best else sorted(fabric.best)
            found = measure(lab, order, fabric.per_node, case.make, rounds)
            if case.make is stock:
                stock_s[case.best] = found.time_s
            gains = [stock_s[best] / found.time_s if best in stock_s else None for best in (True, False)]
            best, scheduler = (f"{gain:.2f}" if gain else "" for gain in gains)
            print(
                f"  {case.title:34}{found.time_s * 1e3:7.0f}{found.time_s / fabric.bound_s:9.3f}{best:>11}"
                f"{scheduler:>12}{found.node_vectors:11.2f}{found.uplink_vectors:12.2f}",
                flush=True,
            )


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}, {time.strftime('%F')}, 2 cores")
    what = f"nodes {NODE_BITS_PER_S / 1e6:.0f} Mbit/s, {BYTES / 1e6:.0f} MB of fp32"
    print(f"{what}, median of {rounds}; gain: gloo's time in the best or the scheduler's order over this one")
    two = [Case("gloo", stock), Case("torus, 1 level", by_torus(2))]
    compare(Fabric({"ra": ["n1", "n2"]}, 1, NODE_BITS_PER_S), two, rounds)
    four = [Case("gloo", stock), Case("torus 2 x 2", by_torus(2, 2)), Case("hierarchical", hierarchical(2, 2))]
    compare(Fabric({"ra": ["n1", "n2"]}, 2, NODE_BITS_PER_S), four, rounds)
    eight = [
        Case("gloo", stock),
        Case("torus 2 x 4, serial", by_torus(2, 4, serial=True)),
        Case("torus 2 x 4", by_torus(2, 4)),
    ]
    compare(Fabric(ONE_RACK, 2, NODE_BITS_PER_S), eight, rounds)
    for share in (2, 4):
        cases = [
            Case("gloo", stock),
            Case("gloo, scheduler's order", stock, best=False),
            Case("hierarchical 2 x 4", hierarchical(2, 4)),
            Case("torus 2 x 4", by_torus(2, 4)),
            Case("torus 4 x 2", by_torus(4, 2)),
            Case("torus 2 x 2 x 2, serial", by_torus(2, 2, 2, serial=True)),
            Case("torus 2 x 2 x 2", by_torus(2, 2, 2)),
        ]
        compare(Fabric(TWO_RACKS, 2, NODE_BITS_PER_S / share), cases, rounds)


if __name__ == "__main__":
    main()
