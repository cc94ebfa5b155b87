"""Compares the prediction with measurements: steps of random trainings over shaped links.

`python -m benchmarks.predict [CONFIGURATIONS] [SEED] [apart]` as root. Racks, uplinks, ranks per node, grids, orders of
hosts, sizes, plans of groups and times of backward are drawn at random. Backward is replayed by waiting; every group
goes through the training's torus over gloo, in one chunk, as soon as it is ready. Latency and time per byte are fitted
once for every class of link, from all-reduces that load that class, before any prediction. With `apart`, a barrier
separates the phases of the torus, as in the model.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist

from benchmarks.shaped_racks import ShapedRacks
from benchmarks.shaped_ranks import times_s, together
from orchestrator.network.hosts.model import Cluster, Host, Link, NodeType, Switch
from orchestrator.network.placement.arrange import arrange
from orchestrator.network.placement.rings import Rings
from orchestrator.network.placement.timing import timing
from orchestrator.network.prediction import tensors
from orchestrator.network.prediction.calibration import Fit, MeasuredTime, fits
from training.collectives import chunks
from training.collectives.phases import Way
from training.collectives.pipeline import Pipeline
from training.collectives.torus import Torus
from training.sync.buckets import exact, shapes

NODE_BITS_PER_S = 50e6
UPLINKS_BITS_PER_S = {"uplink-25": 25e6, "uplink-50": 50e6, "uplink-100": 100e6}
SIZES_BYTES = (200_000, 800_000, 2_400_000)
ROUNDS = 3
WORST = 10


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


class Apart(Pipeline):
    """The phases of a torus; no rank begins a phase before all ranks have ended the one before."""

    def run(self, ways: Sequence[Way]) -> None:
        (way,) = ways
        for _, step in way:
            dist.barrier()
            step.post()
            step.run()


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


def calibrated() -> dict[str, Fit]:
    """Fits of every class of link, from all-reduces that it bounds: pairs in nodes, rings of nodes, rings of racks."""
    four, rows = [f"n{i}" for i in range(4)], list[MeasuredTime]()
    with ShapedRacks({"r": four}, NODE_BITS_PER_S, NODE_BITS_PER_S) as lab:
        rows += _rows("intra_node", lab, four, 2, [[2 * i, 2 * i + 1] for i in range(4)], 1)
        rows += _rows("node", lab, four, 1, [[0, 1, 2, 3]], 1)
        rows += _rows("node", lab, four, 2, [[0, 2, 4, 6], [1, 3, 5, 7]], 2)
    for name, bits_per_s in UPLINKS_BITS_PER_S.items():
        racks = {rack: [f"{rack}{i}" for i in range(3)] for rack in ("ra", "rb")}
        with ShapedRacks(racks, NODE_BITS_PER_S, bits_per_s) as lab:
            in_turn = [host for pair in zip(*racks.values(), strict=True) for host in pair]
            rows += _rows(name, lab, in_turn, 1, [list(range(6))], 3)
    return {fit.link: fit for fit in fits(rows)}


def _rows(
    link: str, lab: ShapedRacks, hosts: Sequence[str], per_node: int, groups: Sequence[Sequence[int]], flows: int
) -> Iterator[MeasuredTime]:
    """Times of all-reduces in `groups` at the same time; `flows` of their hops load one link of the class."""

    def reduce(rank: int) -> list[float]:
        (mine,) = [own for own, members in [(dist.new_group(list(m)), m) for m in groups] if rank in members]
        vectors = [torch.ones(size // 4) for size in SIZES_BYTES]
        return [_median_s(partial(dist.all_reduce, vector, group=mine)) for vector in vectors]

    for size, time_s in zip(SIZES_BYTES, together(lab, hosts, per_node, reduce), strict=True):
        yield MeasuredTime(link, "all_reduce", len(groups[0]), size * flows, time_s)


def _median_s(act: Callable[[], object]) -> float:
    return statistics.median(times_s(act, ROUNDS))


@dataclass(frozen=True)
class Drawn:
    """The step of a case: its hosts in order, when each gradient is ready, their bytes and groups, and the formula."""

    known: Cluster
    hosts: Sequence[str]
    ready_s: Sequence[float]
    sizes: Sequence[int]
    groups: Sequence[int]
    predicted_s: float


def drawn_step(drawn: Case, links: Mapping[str, Fit], chance: random.Random) -> Drawn:
    """The step of a case, as the formulas predict it."""
    known = cluster(drawn, links)
    names = sorted(host.name for host in known.hosts)
    ours = arrange(drawn.grid, names, drawn.per_node, known).hosts
    hosts = {"ours": ours, "alphabetical": names, "random": chance.sample(names, len(names))}[drawn.order_by]
    cost_s = timing(Rings(drawn.grid, drawn.per_node), known, hosts, "gloo")
    layers = tensors.resnet50()
    scale = drawn.bytes_ / sum(layer.parameters for layer in layers)
    sizes = [4 * max(1, round(layer.parameters * scale / 4)) for layer in layers]
    ready_s = tensors.ready_s(layers, drawn.backward_s * cost_s(sum(sizes)))
    groups = {
        "exact": lambda: exact.best_buckets(ready_s, sizes, cost_s),
        "one": lambda: (len(sizes),),
        "3 equal": lambda: shapes.equal_buckets(sizes, 3),
        "random": lambda: _cut(len(sizes), chance),
    }[drawn.plan_by]()
    return Drawn(known, hosts, ready_s, sizes, groups, exact.end_s(ready_s, sizes, cost_s, groups))


def compared(drawn: Case, links: Mapping[str, Fit], chance: random.Random, kind: type[Pipeline]) -> tuple[float, float]:
    """(predicted, measured) seconds of the step."""
    step = drawn_step(drawn, links, chance)
    with ShapedRacks(drawn.racks, NODE_BITS_PER_S, {r: UPLINKS_BITS_PER_S[c] for r, c in drawn.uplinks.items()}) as lab:
        return step.predicted_s, together(
            lab,
            step.hosts,
            drawn.per_node,
            lambda rank: _step_s(Torus(drawn.grid, kind), step.ready_s, step.sizes, step.groups),
        )


def _cut(count: int, chance: random.Random) -> tuple[int, ...]:
    """One to six groups, cut at random."""
    ends = sorted(chance.sample(range(1, count), chance.randint(0, 5)))
    return tuple(b - a for a, b in zip([0, *ends], [*ends, count], strict=True))


def _step_s(torus: Torus, ready_s: Sequence[float], sizes: Sequence[int], groups: Sequence[int]) -> float:
    """The time of the step on one rank: wait for a group's last gradient, reduce the group, take the next."""
    ends = [sum(groups[: i + 1]) for i in range(len(groups))]
    vectors = [torch.ones(torus.padded(sum(sizes[end - n : end]) // 4)) for n, end in zip(groups, ends, strict=True)]

    def step() -> None:
        started_s = time.perf_counter()
        for end, vector in zip(ends, vectors, strict=True):
            time.sleep(max(0.0, started_s + ready_s[end - 1] - time.perf_counter()))
            torus.mean_(vector)

    return _median_s(step)


def main() -> None:
    count, seed = int(sys.argv[1]) if len(sys.argv) > 1 else 100, int(sys.argv[2]) if len(sys.argv) > 2 else 1
    kind = Apart if sys.argv[3:] == ["apart"] else Pipeline
    chunks.MOST_DOUBLINGS = 0  # one chunk, as in the model
    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}, {time.strftime('%F')}")
    how = ", phases kept apart" if kind is Apart else ""
    print(f"{count} configurations, seed {seed}{how}; nodes {NODE_BITS_PER_S / 1e6:.0f} Mbit/s; medians of {ROUNDS}\n")
    links = calibrated()
    for fit in links.values():
        print(
            f"{fit.link:12}{8e-6 / fit.beta_s_per_byte:9.1f} Mbit/s{fit.alpha_s * 1e3:8.3f} ms   "
            f"{fit.rows} rows, worst {fit.worst_percent:.1f} %"
        )
    chance, found = random.Random(seed), list[tuple[float, str]]()
    print(
        "\nerror %  predicted ms  measured ms  racks@uplinks     ranks/node, grid, order, gradients, groups, backward"
    )
    for _ in range(count):
        drawn = case(chance)
        predicted_s, measured_s = compared(drawn, links, chance, kind)
        error = 100 * (predicted_s / measured_s - 1)
        found.append((error, f"{error:+7.1f}{predicted_s * 1e3:14.0f}{measured_s * 1e3:13.0f}  {drawn}"))
        print(found[-1][1], flush=True)
    errors = sorted(abs(error) for error, _ in found)
    within = sum(error <= 5 for error in errors)
    print(f"\nerror of the step: median {statistics.median(errors):.1f} %, largest {errors[-1]:.1f} %, ", end="")
    print(f"90 % below {errors[int(0.9 * len(errors))]:.1f} %, {within} of {count} within 5 %\n\nthe worst:")
    print("\n".join(line for _, line in sorted(found, key=lambda each: -abs(each[0]))[:WORST]))


if __name__ == "__main__":
    main()
