"""Placement against the exhaustive optimum, scipy's quadratic assignment, alphabetical, node-major and random order.

`python -m benchmarks.placement [SMALL MIDDLE]`: SMALL random fragmented allocations of up to 12 nodes, each also solved
by exhaustive search, and MIDDLE of 13 to 60 nodes; then 3,456 ranks on 864 nodes. Needs scipy (the dev extra). An order
is worse than another if its largest link time is larger or, for equal times, if its bytes over uplinks are more.
"""

from __future__ import annotations

import math
import platform
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy
from scipy.optimize import quadratic_assignment

from torusrun.orchestrator.place.hosts.model import Cluster, Host, Link, NodeType, Switch
from torusrun.orchestrator.place.placement.arrange import solve
from torusrun.orchestrator.place.placement.fabric import fabric
from torusrun.orchestrator.place.placement.problem import PlacementProblem, rounded
from torusrun.orchestrator.place.placement.rings import Rings

LINK = Link(25e9, 5e-6)
GPUS = 4
MOST_WAYS = 400_000  # of an exhaustive search


def racks(sizes: Sequence[int], share: float, whole: int | None) -> Cluster:
    """Racks of `sizes` hosts under one switch; an uplink carries `share` of the traffic of `whole` nodes."""
    leaves = [Switch(f"r{i}", "top", Link(25e9 * (whole or n) * share)) for i, n in enumerate(sizes)]
    hosts = [Host(f"r{i:02}n{j:02}", f"r{i}", LINK, GPUS) for i, n in enumerate(sizes) for j in range(n)]
    return Cluster(NodeType(GPUS, (), LINK, Link(50e9)), tuple(hosts), (Switch("top"), *leaves))


def ways(sizes: Sequence[int]) -> int:
    return math.factorial(sum(sizes)) // math.prod(map(math.factorial, sizes))


def drawn(chance: random.Random, low: int, high: int, largest: int, most_ways: float) -> PlacementProblem:
    """A random allocation of low to high nodes in racks of 1 to `largest`, and a random grid of two or three levels."""
    while True:
        sizes = [chance.randint(1, largest) for _ in range(chance.randint(2, 8))]
        nodes = sum(sizes)
        if low <= nodes <= high and ways(sizes) <= most_ways:
            break
    cluster = racks(sizes, chance.choice([1, 1 / 2, 1 / 3, 1 / 4, 1 / 8]), chance.choice([None, largest]))
    hosts = list(cluster.hosts)
    chance.shuffle(hosts)
    ranks = nodes * GPUS
    shapes: list[tuple[int, ...]] = [(x, ranks // x) for x in range(1, ranks + 1) if ranks % x == 0]
    shapes += [(GPUS, d, nodes // d) for d in range(2, nodes) if nodes % d == 0]
    return PlacementProblem(Rings(chance.choice(shapes), GPUS), fabric(cluster, hosts))


def exhaustive(asked: PlacementProblem) -> tuple[float, float]:
    """The lowest cost over all placements of kinds of hosts; on a torus the first position's kind is free."""
    counts = asked.fabric.counts
    first = int(np.argmax(counts)) if asked.rings.torus else None
    kinds = _all_ways(counts, first)
    below = np.array([[u in path for u in range(len(asked.fabric.uplinks))] for path in asked.fabric.paths])
    carried = np.zeros((len(kinds), len(asked.fabric.uplinks)))
    for a, near in enumerate(asked.rings.neighbours):
        for b, bytes_ in near.items():
            if b > a:
                carried += bytes_ * (below[kinds[:, a]] != below[kinds[:, b]])
    hosts = (np.array(asked.host_cost)[kinds] * np.array(asked.egress)).max(axis=1)
    uplinks = (carried * np.array(asked.uplink_cost)).max(axis=1, initial=0)
    largest, total = np.maximum(hosts, uplinks).round(9), carried.sum(axis=1).round(9)
    best = np.lexsort((total, largest))[0]
    return rounded(float(largest[best]), float(total[best]))


def _all_ways(counts: Sequence[int], first: int | None) -> np.ndarray:
    made, left = np.zeros((1, 0), np.int8), np.array([counts], np.int8)
    for position in range(sum(counts)):
        parts, rests = [], []
        for kind in range(len(counts)):
            if position == 0 and first is not None and kind != first:
                continue
            here = left[:, kind] > 0
            parts.append(np.hstack([made[here], np.full((here.sum(), 1), kind, np.int8)]))
            rest = left[here].copy()
            rest[:, kind] -= 1
            rests.append(rest)
        made, left = np.vstack(parts), np.vstack(rests)
    return made


def assignment(asked: PlacementProblem, method: str, seed: int) -> list[int]:
    """scipy's order, by hop-bytes: the bytes between positions times the uplinks between hosts."""
    nodes, kinds = asked.rings.positions, asked.fabric.kinds
    flows = np.zeros((nodes, nodes))
    for a, near in enumerate(asked.rings.neighbours):
        for b, bytes_ in near.items():
            flows[a, b] = bytes_
    hops = np.array([[len(asked.fabric.crossed[a][b]) for b in kinds] for a in kinds], float)
    found = quadratic_assignment(flows, hops, method=method, options={"rng": np.random.default_rng(seed)})
    return [kinds[host] for host in found.col_ind]


def scattered(asked: PlacementProblem, seed: int) -> list[int]:
    order = list(asked.fabric.kinds)
    random.Random(seed).shuffle(order)
    return order


def round_robin(asked: PlacementProblem) -> list[int]:
    """Hosts from the leaves in turn, as from a scheduler that balances racks."""
    left, order = list(asked.fabric.counts), list[int]()
    while len(order) < asked.rings.positions:
        for kind, count in enumerate(left):
            if count:
                order.append(kind)
                left[kind] -= 1
    return order


PEERS: dict[str, Callable[[PlacementProblem, int], list[int]]] = {
    "scipy faq": lambda asked, seed: assignment(asked, "faq", seed),
    "scipy 2opt": lambda asked, seed: assignment(asked, "2opt", seed),
    "alphabetical (node-major)": lambda asked, seed: sorted(asked.fabric.kinds),
    "round robin over racks": lambda asked, seed: round_robin(asked),
    "random": scattered,
}


def compare(title: str, cases: Sequence[PlacementProblem], peers: Sequence[str], proof: bool) -> None:
    """Print for every peer: the ratio of its largest link time to ours, its worse and better cases, its time."""
    taken: dict[str, list[float]] = {name: [] for name in ("ours", *peers)}
    ratios: dict[str, list[float]] = {name: [] for name in peers}
    better: Counter[str] = Counter()
    worse: Counter[str] = Counter()
    gaps, proved, optimal = [], 0, 0
    for seed, asked in enumerate(cases):
        kinds, sure = timed(taken["ours"], partial(solve, asked))
        mine = asked.cost(kinds)
        gaps.append(mine[0] / asked.bound[0])
        proved += sure
        optimal += proof and mine == exhaustive(asked)
        for name in peers:
            theirs = asked.cost(timed(taken[name], partial(PEERS[name], asked, seed)))
            ratios[name].append(theirs[0] / mine[0])
            better[name] += theirs < mine
            worse[name] += theirs > mine
    print(f"\n{title}: {len(cases)} cases")
    if proof:
        print(f"  equal to the exhaustive optimum in {optimal} of {len(cases)} ({100 * optimal / len(cases):.1f} %)")
    over = f"mean {statistics.mean(gaps):.4f}, worst {max(gaps):.3f}"
    print(f"  proved optimal {proved}; largest link over the bound: {over}")
    head = f"  {'order':27}{'largest link, x ours':>22}{'':>10}{'better':>8}{'worse':>7}{'median time':>13}"
    print(f"{head}\n  {'':27}{'median':>11}{'mean':>11}{'worst':>10}{'than ours':>15}{'x ours':>13}")
    ours_s = statistics.median(taken["ours"])
    print(f"  {'ours':27}{1:11.3f}{1:11.3f}{1:10.3f}{0:8}{0:7}{ours_s * 1e3:10.1f} ms")
    for name in peers:
        values, time_s = ratios[name], statistics.median(taken[name]) / ours_s
        columns = f"{statistics.median(values):11.3f}{statistics.mean(values):11.3f}{max(values):10.3f}"
        print(f"  {name:27}{columns}{better[name]:8}{worse[name]:7}{time_s:13.3g}")


def timed(into: list[float], call: Callable[[], Any]) -> Any:
    started_s = time.perf_counter()
    result = call()
    into.append(time.perf_counter() - started_s)
    return result


def large(seed: int, dims: tuple[int, int], share: float) -> PlacementProblem:
    """864 nodes in racks of 34; 20 to 34 nodes of each rack are allocated."""
    chance, sizes = random.Random(seed), list[int]()
    while sum(sizes) < 864:
        sizes.append(min(chance.randint(20, 34), 864 - sum(sizes)))
    cluster = racks(sizes, share, 34)
    hosts = list(cluster.hosts)
    chance.shuffle(hosts)
    return PlacementProblem(Rings(dims, GPUS), fabric(cluster, hosts))


def main() -> None:
    small, middle = (int(word) for word in (sys.argv[1:3] or ("1000", "200")))
    print(
        f"Python {platform.python_version()}, numpy {np.__version__}, scipy {scipy.__version__}, {time.strftime('%F')}"
    )
    chance = random.Random(2026)
    few = [drawn(chance, 2, 12, 6, MOST_WAYS) for _ in range(small)]
    compare("up to 12 nodes, racks of 1 to 6", few, list(PEERS), proof=True)
    some = [drawn(chance, 13, 60, 12, math.inf) for _ in range(middle)]
    compare("13 to 60 nodes, racks of 1 to 12", some, list(PEERS), proof=False)
    cheap = [name for name in PEERS if not name.startswith("scipy")]
    for share in (1 / 3, 1 / 16):
        for dims in ((4, 864), (48, 72)):
            cases = [large(seed, dims, share) for seed in range(3)]
            title = f"3,456 ranks {dims[0]}x{dims[1]} on 864 nodes, racks of 20 to 34, uplinks 1/{1 / share:.0f}"
            compare(title, cases, cheap, proof=False)


if __name__ == "__main__":
    main()
