"""Measures placement: torusrun's torus over gloo on two shaped racks, in our order, alphabetical and random.

`python -m benchmarks.placement_wire [ROUNDS]` as root. Node names alternate between the racks, as with a scheduler that
fills racks in turn, so alphabetical order is not the order of the network. The prediction is the load model's, as a
ratio to ours: phase after phase, each as long as its most loaded link. No constant is fitted.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Sequence

import torch

from benchmarks.shaped_racks import ShapedRacks
from benchmarks.shaped_ranks import times_s, together
from torusrun.orchestrator.place.hosts.model import Cluster, Host, Link, NodeType, Switch
from torusrun.orchestrator.place.placement.arrange import arrange
from torusrun.orchestrator.place.placement.rings import Rings
from torusrun.orchestrator.place.placement.timing import timing
from torusrun.training.collectives import chunks
from torusrun.training.collectives.all_reduce import build

NODE_BITS_PER_S = 50e6
ELEMENTS = 1_000_000  # of 4 bytes
RANKS_PER_NODE = 2
chunks.SMALLEST_CHUNK_BYTES = 64 * 1024  # a short vector on slow links
RACKS = {"ra": ["n1", "n3"], "rb": ["n2", "n4"]}


def cluster(uplink_bits_per_s: float) -> Cluster:
    node, uplink = Link(NODE_BITS_PER_S / 8), Link(uplink_bits_per_s / 8)
    hosts = [Host(name, rack, node, RANKS_PER_NODE) for rack, names in RACKS.items() for name in names]
    switches = [Switch("top"), *(Switch(rack, "top", uplink) for rack in RACKS)]
    return Cluster(NodeType(RANKS_PER_NODE, (), node, Link(4e9)), tuple(hosts), tuple(switches))


def measured_s(lab: ShapedRacks, order: Sequence[str], grid: tuple[int, int], rounds: int) -> float:
    """The median time of one all-reduce with two consecutive ranks on every host of `order`."""

    def reduce(rank: int) -> list[float]:
        torus, buffer = build("torus", grid), torch.empty(ELEMENTS)
        found_s = times_s(lambda: torus.mean_(buffer), rounds, lambda: buffer.fill_(rank))
        assert buffer[0] == buffer[-1] == (grid[0] * grid[1] - 1) / 2, "a wrong mean"
        return found_s

    return statistics.median(together(lab, order, RANKS_PER_NODE, reduce))


def predicted_s(rings: Rings, known: Cluster, order: Sequence[str]) -> float:
    """The time of the all-reduce on these links."""
    return timing(rings, known, order, "gloo")(4 * ELEMENTS)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}, {time.strftime('%F')}")
    links = f"nodes {NODE_BITS_PER_S / 1e6:.0f} Mbit/s, {4 * ELEMENTS / 1e6:.0f} MB"
    print(f"2 racks x 2 nodes x 2 ranks; {links}, median of {rounds} all-reduces\n")
    print(f"{'uplink':>10} {'grid':>5} {'order':14}{'hosts':14}{'ms':>7}{'x ours':>8}{'predicted':>11}{'error':>8}")
    for share in (2, 4):
        uplink_bits_per_s = NODE_BITS_PER_S * 2 / share
        known = cluster(uplink_bits_per_s)
        names = sorted(host.name for host in known.hosts)
        with ShapedRacks(RACKS, NODE_BITS_PER_S, uplink_bits_per_s) as lab:
            for grid in ((2, 4), (4, 2)):
                ours = arrange(grid, names, RANKS_PER_NODE, known)
                shuffled = random.Random(2).sample(names, len(names))
                base_s = base = None
                for title, order in (("ours", ours.hosts), ("alphabetical", names), ("random", shuffled)):
                    time_s = measured_s(lab, order, grid, rounds)
                    model = predicted_s(ours.rings, known, order)
                    base_s, base = base_s or time_s, base or model
                    error = model / base / (time_s / base_s) - 1
                    print(
                        f"{share:>8}:1 {grid[0]}x{grid[1]:<3} {title:14}{','.join(order):14}{time_s * 1e3:7.0f}"
                        f"{time_s / base_s:8.2f}{model / base:11.2f}{error * 100:+7.1f}%",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
