"""NCCL's all-reduces against times that were computed from NCCL 2.30.7's src/graph/tuning.cc, not by our code.

Commit 5067397. By an independent transcription of the lines 148 to 182 (constants), 288 to 417 (bandwidth and latency
of rings and trees) and 620 to 653 (corrections by size), for a processor of Intel and without the limits per channel of
the lines 329, 331 and 335: the channels are not known.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.torus_cases import names, racks
from torusrun.orchestrator.forecast.constants import network
from torusrun.orchestrator.keys.load import load_site
from torusrun.orchestrator.place.cost import nccl, regular
from torusrun.orchestrator.place.cost.all_reduce import AllReduceTime
from torusrun.orchestrator.place.cost.phases import PhaseLinks
from torusrun.orchestrator.place.cost.regular import Level, Network
from torusrun.orchestrator.place.placement.rings import Rings
from torusrun.orchestrator.place.placement.timing import timing
from torusrun.orchestrator.schedulers.topology import on_one_switch

POWERS = (10, 13, 15, 18, 20, 23, 26, 29)
# The network, its nodes, and the microseconds of an all-reduce of 2^POWERS bytes over all their GPUs.
FASTEST = """
abci-v    1     10.25     10.61     11.84     23.31     53.89    238.52   1706.52  13450.57
abci-v    4     30.82     34.70     47.59     90.49    178.58    843.44   5923.01  45069.84
abci-v   16     50.82     54.70     67.59    134.53    269.61   1050.08   6699.04  48410.32
abci-v   64     70.82     74.70     87.59    168.53    303.61   1084.08   7706.22  52071.99
abci-a    1     15.02     15.16     15.65     20.23     35.92    109.98    566.61   4140.89
abci-a    4     35.31     36.35     39.79     76.76    110.53    305.65   1714.73  11953.56
abci-a   16     55.31     56.35     59.79    110.76    144.53    339.65   2020.67  13144.30
abci-a   64     75.31     76.35     79.79    139.45    178.53    373.65   2054.67  13200.30
abci-h    1     15.01     15.10     15.41     18.25     28.01     84.32    377.75   2630.04
abci-h    4     35.31     36.35     39.79     71.13     88.01    185.57    929.57   6174.74
abci-h   16     55.31     56.35     59.79    105.13    122.01    219.57   1060.08   6660.35
abci-h   64     75.31     76.35     79.79    139.13    156.01    253.57   1094.08   6716.35
"""
ROWS = [(name, int(nodes), tuple(map(float, us))) for name, nodes, *us in map(str.split, FASTEST.split("\n")[1:-1])]
# The network, nodes, ranks and power of two, and the microseconds of a ring and of a tree by LL, LL128 and Simple.
# The groups of 64 ranks on 64 nodes are columns of a torus: one rank on each node, whose link all columns share.
EACH = [
    ("abci-v", 16, 64, 20, (367.101, 416.129, 1525.870), (820.369, 269.610, 347.023)),
    ("abci-v", 64, 64, 20, (1370.603, 1483.915, 3734.562), (3690.183, 963.575, 1129.922)),
    ("abci-h", 1, 8, 23, (119.114, 84.317, 96.219), (252.519, 102.874, 126.852)),
    ("abci-h", 16, 128, 26, (6839.500, 1363.762, 2405.829), (6634.500, 1060.085, 1189.517)),
    ("abci-h", 64, 64, 15, (642.334, 1088.117, 2484.227), (87.020, 121.676, 182.608)),
]


def flat(name: str, nodes: int) -> AllReduceTime:
    known = network(name)
    links = known.holding(nodes * known.levels[0].members)
    return regular.all_reduce(links, (links.ranks,), "nccl")


@pytest.mark.parametrize(("name", "nodes", "us"), ROWS, ids=lambda value: str(value)[:8])
def test_an_all_reduce_takes_what_nccls_model_says(name: str, nodes: int, us: tuple[float, ...]) -> None:
    found = flat(name, nodes)
    assert [1e6 * found(float(1 << power)) for power in POWERS] == pytest.approx(us, rel=2e-3)


@pytest.mark.parametrize(("name", "nodes", "ranks", "power", "ring", "tree"), EACH)
def test_each_algorithm_and_protocol_takes_what_nccls_model_says(
    name: str, nodes: int, ranks: int, power: int, ring: tuple[float, ...], tree: tuple[float, ...]
) -> None:
    known = network(name).holding(nodes * network(name).levels[0].members)
    dims = (known.ranks,) if ranks == known.ranks else (known.levels[0].members, nodes)
    phase = regular.all_reduce(known, dims, "nccl").phases[len(dims) - 1]
    size, capability = (1 << power) / phase.share, known.compute_capability
    assert phase.tree and phase.ranks == ranks
    rings_s = [nccl.ring_s(phase, size, protocol, capability) for protocol in nccl.PROTOCOLS]
    trees_s = [nccl.tree_s(phase.tree, size, 1 << power, protocol, capability) for protocol in nccl.PROTOCOLS]
    assert [1e6 * time_s for time_s in rings_s] == pytest.approx(ring, rel=1e-5)
    assert [1e6 * time_s for time_s in trees_s] == pytest.approx(tree, rel=1e-5)


@pytest.mark.parametrize(("name", "nodes", "us"), ROWS, ids=lambda value: str(value)[:8])
def test_the_shipped_sites_take_as_long_as_their_networks(
    home: Path, name: str, nodes: int, us: tuple[float, ...]
) -> None:
    """The site file, by the hosts of one switch."""
    site = load_site(name)
    ranks = site.node.ranks * nodes
    hosts = on_one_switch(site, tuple(f"g{number}" for number in range(nodes)), "it is a test")
    found = timing(Rings((ranks,), site.node.ranks), hosts.cluster, names(hosts.cluster), "nccl")
    assert [1e6 * found(float(1 << power)) for power in POWERS] == pytest.approx(us, rel=2e-3)


def ring_over(near_s: float, far_s: float) -> PhaseLinks:
    """16 ranks on 4 nodes; hops of 12 ranks to the next within a node and 3 between nodes."""
    levels = Level("node", 4, 1e12, near_s), Level("cluster", 4, 1e12, far_s, 4)
    return regular.all_reduce(Network(levels), (16,), "nccl").phases[0]


def test_a_slower_link_adds_its_latency_to_every_hop_and_a_quicker_one_takes_its_share() -> None:
    usual = ring_over(0.6e-6, 5e-6)
    for protocol, near_us in (("LL", 1.0), ("LL128", 1.9), ("Simple", 3.4)):
        usual_s = nccl.ring_s(usual, 0.0, protocol, 70)
        factor = 1.9 if protocol == "Simple" else 1.0
        assert nccl.ring_s(ring_over(0.6e-6, 30e-6), 0.0, protocol, 70) - usual_s == pytest.approx(factor * 6 * 25e-6)
        slow_s = nccl.ring_s(ring_over(10.6e-6, 5e-6), 0.0, protocol, 70)
        hop_us = nccl.NEAR_US["ring"][protocol] + 10
        assert slow_s - usual_s == pytest.approx(factor * 24e-6 * (hop_us - near_us))
        half_s = nccl.ring_s(ring_over(0.6e-6, 2.5e-6), 0.0, protocol, 70)
        assert usual_s - half_s == pytest.approx(factor * 6 * nccl.FAR_US["ring"][protocol] * 1e-6 / 2)
        assert 0 < nccl.ring_s(ring_over(0.0, 0.0), 0.0, protocol, 70) < half_s


def test_the_plateau_of_rings_and_ll128_go_by_the_gpus() -> None:
    found = ring_over(0.6e-6, 5e-6)
    older, newer = (nccl.ring_s(found, 0.0, "Simple", capability) for capability in (70, 80))
    assert older / newer == pytest.approx(1.9 / 1.4)
    size = 2.0**23
    by_ll128 = nccl.phase_s(found, size, 70, ("ring",))
    assert by_ll128 == nccl.ring_s(found, size, "LL128", 70)
    assert nccl.phase_s(found, size, 61, ("ring",)) == min(
        nccl.ring_s(found, size, "LL", 61), nccl.ring_s(found, size, "Simple", 61)
    )


@pytest.mark.parametrize(
    ("architecture", "capability"), [("sm_70", 70), ("sm_90a", 90), ("sm_100", 100), ("gfx90a", 80), (None, 80)]
)
def test_the_compute_capability_of_an_architecture(architecture: str | None, capability: int) -> None:
    assert nccl.compute_capability(architecture) == capability


def test_hops_between_nodes_that_are_quicker_than_those_within_still_take_time() -> None:
    known = racks([4, 4], 0.5)
    slow = replace(known.node, intra_node=replace(known.node.intra_node, latency_s=50e-6))
    for dims in ((32,), (8, 4), (4, 8)):
        found = timing(Rings(dims, 4), replace(known, node=slow), names(known), "nccl")
        assert all(phase.far_s >= 0.0 and (phase.far_s > 0.0) == (phase.far_hops > 0) for phase in found.phases)
