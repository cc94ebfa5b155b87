"""Random steps of trainings on random clusters of shaped racks, as the formulas predict them.

Racks, uplinks, ranks per node, grids, orders of hosts, sizes, plans of groups and times of backward are drawn.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from torusrun.orchestrator.forecast import doubts, step
from torusrun.orchestrator.forecast.interval import Interval
from torusrun.orchestrator.place.hosts.model import Cluster, Host, Link, NodeType, Switch
from torusrun.orchestrator.place.placement.arrange import arrange
from torusrun.orchestrator.place.placement.rings import Rings
from torusrun.orchestrator.place.placement.timing import timing
from torusrun.orchestrator.predict.measurements import Fit
from torusrun.training.sync import plans

NODE_BITS_PER_S = 50e6
UPLINKS_BITS_PER_S = {"uplink-25": 25e6, "uplink-50": 50e6, "uplink-100": 100e6}
ROUNDS = 3


@dataclass(frozen=True)
class Case:
    """One training's step on one cluster."""

    racks: Mapping[str, Sequence[str]]
    uplinks: Mapping[str, str]  # rack -> class
    per_node: int
    grid: tuple[int, int]
    order_by: str
    plan_by: str
    bytes_: int
    backward_s: float  # as a share of one all-reduce of everything

    def __str__(self) -> str:
        racks = "+".join(f"{len(nodes)}@{self.uplinks[rack][7:]}" for rack, nodes in self.racks.items())
        grid = f"{self.grid[0]}x{self.grid[1]}"
        what = f"{self.bytes_ / 1e6:.1f} MB, {self.plan_by}, backward {self.backward_s:.1f}"
        return f"{racks:17} x{self.per_node} {grid:5} {self.order_by:12} {what:35}"


def case(chance: random.Random) -> Case:
    """A random case: three to six nodes in two or three racks, and a training on them."""
    counts = [1]
    while not 3 <= sum(counts) <= 6:
        counts = [chance.randint(1, 4) for _ in range(chance.randint(2, 3))]
    names = iter(chance.sample([f"n{i}" for i in range(sum(counts))], sum(counts)))
    racks = {f"r{i}": [next(names) for _ in range(count)] for i, count in enumerate(counts)}
    per_node = chance.choice([1, 2])
    ranks = per_node * sum(counts)
    return Case(
        racks,
        {rack: chance.choice(list(UPLINKS_BITS_PER_S)) for rack in racks},
        per_node,
        chance.choice([(x, ranks // x) for x in range(1, ranks + 1) if ranks % x == 0]),
        chance.choice(["ours", "alphabetical", "random"]),
        chance.choice(["exact", "one", "3 equal", "random"]),
        chance.choice([1_500_000, 3_000_000, 4_500_000]),
        chance.choice([0.0, 0.3, 0.6, 1.0]),
    )


def cluster(drawn: Case, links: Mapping[str, Fit]) -> Cluster:
    """The cluster of a case with fitted links; an uplink adds to a hop the time beyond that of a node's link."""
    fitted = {name: Link(1 / fit.beta_s_per_byte, fit.alpha_s) for name, fit in links.items()}
    node = fitted["node"]
    hosts = [Host(name, rack, node, drawn.per_node) for rack, names in drawn.racks.items() for name in names]
    uplinks = {
        rack: Link(fitted[name].bandwidth_bytes_per_s, max(0.0, fitted[name].latency_s - node.latency_s) / 2)
        for rack, name in drawn.uplinks.items()
    }
    switches = (Switch("top"), *(Switch(rack, "top", uplink) for rack, uplink in uplinks.items()))
    return Cluster(NodeType(drawn.per_node, (), node, fitted["intra_node"]), tuple(hosts), switches)


@dataclass(frozen=True)
class Drawn:
    """The step of a case: its hosts in order, when each gradient is ready, their bytes and groups, and the formula.

    `between_s` are the bounds at 90 %, from the doubt that every forecast has over measured links.
    """

    known: Cluster
    hosts: Sequence[str]
    ready_s: Sequence[float]
    sizes: Sequence[int]
    groups: Sequence[int]
    predicted_s: float
    between_s: Interval


def drawn_step(drawn: Case, links: Mapping[str, Fit], chance: random.Random) -> Drawn:
    """The step of a case, as the formulas predict it."""
    known = cluster(drawn, links)
    names = sorted(host.name for host in known.hosts)
    ours = arrange(drawn.grid, names, drawn.per_node, known).hosts
    hosts = {"ours": ours, "alphabetical": names, "random": chance.sample(names, len(names))}[drawn.order_by]
    cost_s = timing(Rings(drawn.grid, drawn.per_node), known, hosts, "gloo")
    layers = step.resnet50()
    scale = drawn.bytes_ / sum(layer.parameters for layer in layers)
    sizes = [4 * max(1, round(layer.parameters * scale / 4)) for layer in layers]
    ready_s = step.ready_s(layers, drawn.backward_s * cost_s(sum(sizes)))
    groups = {
        "exact": lambda: plans.best_buckets(ready_s, sizes, cost_s),
        "one": lambda: (len(sizes),),
        "3 equal": lambda: plans.equal_buckets(sizes, 3),
        "random": lambda: _cut(len(sizes), chance),
    }[drawn.plan_by]()
    factor = doubts.links_factor(max(fit.worst_percent for name, fit in links.items() if name != "intra_node") / 100)
    low_s, time_s, high_s = (
        plans.end_s(ready_s, sizes, partial(_times, cost_s, by), groups) for by in (factor.low, 1.0, factor.high)
    )
    return Drawn(known, hosts, ready_s, sizes, groups, time_s, Interval(low_s, high_s))


def _times(cost_s: Callable[[float], float], factor: float, size_bytes: float) -> float:
    return factor * cost_s(size_bytes)


def _cut(count: int, chance: random.Random) -> tuple[int, ...]:
    """One to six groups, cut at random."""
    ends = sorted(chance.sample(range(1, count), chance.randint(0, 5)))
    return tuple(b - a for a, b in zip([0, *ends], [*ends, count], strict=True))
