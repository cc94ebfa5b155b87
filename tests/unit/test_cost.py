"""The cost of an all-reduce: NCCL's and gloo's by hand, and the same on given hosts as on a regular network."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.torus_cases import names, racks
from torusrun.orchestrator.place.cost import nccl, phases, regular
from torusrun.orchestrator.place.cost.algorithms import cost_of
from torusrun.orchestrator.place.cost.all_reduce import Backend
from torusrun.orchestrator.place.cost.regular import Level, Network
from torusrun.orchestrator.place.cost.shapes import divisors, shapes
from torusrun.orchestrator.place.hosts.model import Cluster, Host, Link, NodeType, Switch
from torusrun.orchestrator.place.placement.arrange import arrange
from torusrun.orchestrator.place.placement.choose import choices
from torusrun.orchestrator.place.placement.rings import Rings
from torusrun.orchestrator.place.placement.timing import HostsLayout, timing
from torusrun.training.collectives import chunks
from torusrun.training.collectives.chunks import Span
from torusrun.training.recipe.train import SyncKeys

ROOT = Path(__file__).resolve().parents[2]
MIB = float(1 << 20)
backends = st.sampled_from(["nccl", "gloo"])


def nodes_of_4(nodes: int) -> Network:
    return Network((Level("node", 4, 60e9, 1e-6), Level("cluster", nodes, 20e9, 5e-6, 4)))


def one_switch(nodes: int, inside: float, latency_s: float) -> Cluster:
    link = Link(1e10, latency_s)
    found = racks([nodes])
    hosts = tuple(replace(host, network=link) for host in found.hosts)
    return replace(found, node=NodeType(4, (), link, Link(inside, latency_s / 3)), hosts=hosts)


def whole(dims: tuple[int, ...]) -> bool:
    """Whether no level's groups straddle nodes of 4: where they do the regular network takes the worst of all nodes."""
    sizes = [math.prod(dims[: level + 1]) for level in range(len(dims))]
    return all(size % 4 == 0 or 4 % size == 0 for size in sizes)


def test_a_flat_all_reduce_by_nccls_model_by_hand() -> None:
    """16 nodes of 4: the tree by LL, LL128 and Simple, the ring by Simple; small messages take 1 and 5 us."""
    phase = regular.all_reduce(nodes_of_4(16), (64,), "nccl").phases[0]
    assert phase.tree
    n, tree, b = 16 * MIB, phase.tree, 20e9
    assert nccl.tree_s(tree, n, n, "LL", 80) == pytest.approx(
        6.8e-6 + 2 * (3e-6 + 4 * 5e-6) + 2 * n / (b * 0.92 / 3.8 * 0.9)
    )
    ll128 = 14e-6 + 2 * (3 * 1.65e-6 + 4 * 8.5e-6) + 2 * n / (b * 0.92 * 120 / 128 * 0.9)
    assert nccl.tree_s(tree, n, n, "LL128", 80) == pytest.approx(ll128)
    simple = 8.4e-6 + 2 * (3 * 4.4e-6 + 4 * 14e-6) + 2 * n / (b * 0.92 * 0.7)
    assert nccl.tree_s(tree, n, n, "Simple", 80) == pytest.approx(simple)
    ring = 1.4 * (8.4e-6 + 2 * (48 * 3.8e-6 + 15 * 14e-6)) + 126 / 64 * n / b
    assert nccl.ring_s(phase, n, "Simple", 80) == pytest.approx(ring)


def test_a_column_with_one_rank_in_each_node_by_hand() -> None:
    """Its hops are a tree's, and its tree has 0.85 of the bandwidth."""
    phase = regular.all_reduce(nodes_of_4(16), (4, 16), "nccl").phases[1]
    assert phase.tree and phase.share == 1 / 4
    n = 4 * MIB
    assert nccl.ring_s(phase, n, "LL128", 80) == pytest.approx(14e-6 + 30 * 8.5e-6 + 30 / 16 * n / 4 / (5e9 * 0.92))
    tree = 14e-6 + 8 * 8.5e-6 + 2 * n / 4 / (5e9 * 0.92 * 120 / 128 * 0.85 * 0.6)
    assert nccl.tree_s(phase.tree, n, n / 4, "LL128", 80) == pytest.approx(tree)


def test_halves_are_rings_and_small_messages_go_by_ll() -> None:
    down, _, up = regular.all_reduce(nodes_of_4(16), (4, 16), "nccl").phases
    assert down == up and down.tree is None
    assert nccl.phase_s(down, 64.0, 80) == nccl.ring_s(down, 64.0, "LL", 80)
    assert nccl.phase_s(down, 64 * MIB, 80) == nccl.ring_s(down, 64 * MIB, "Simple", 80)


def test_the_double_tree_is_that_of_nccl() -> None:
    """As drawn in NCCL's trees.cc for 14 ranks, of which the second tree is the mirror."""
    found = phases.edges(14)
    assert set(found[:13]) == {
        (1, 2), (2, 4), (3, 2), (4, 8), (5, 6), (6, 4), (7, 6), (8, 0), (9, 10), (10, 12), (11, 10), (12, 8), (13, 12)
    }  # fmt: skip
    assert {(13 - a, 13 - b) for a, b in found[:13]} == set(found[13:])


@given(st.integers(1, 200))
def test_no_node_is_inner_in_both_trees(nodes: int) -> None:
    found = phases.edges(nodes)
    half = len(found) // 2
    for tree in (found[:half], found[half:]):
        assert len({child for child, _ in tree}) == nodes - 1
    degree = [sum(node in edge for edge in found) for node in range(nodes)]
    assert max(degree) <= 4


@given(
    st.sampled_from([1, 2, 3, 4, 6, 8]),
    st.floats(0, 1e-4),
    st.floats(1e9, 1e12),
    backends,
    st.sampled_from([0.0, 1e4, 1e6, 3e6, 1e8]),
    st.data(),
)
def test_on_one_switch_given_hosts_take_the_time_of_the_regular_network(
    nodes: int, latency_s: float, inside: float, backend: Backend, size: float, data: st.DataObject
) -> None:
    """Two computations that share no code: links loaded one by one here, hops counted by formulas there."""
    cluster = one_switch(nodes, inside, latency_s)
    dims = data.draw(st.sampled_from([dims for dims in shapes(4 * nodes) if whole(dims)]))
    links = Network((Level("node", 4, inside, latency_s / 3), Level("cluster", nodes, 1e10, latency_s, 4)))
    placed = timing(Rings(dims, 4), cluster, names(cluster), backend)
    assert placed(size) == pytest.approx(regular.all_reduce(links, dims, backend)(size), rel=1e-9, abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([2, 3, 4]), st.sampled_from([2, 4]), st.sampled_from([1.0, 0.25]), backends)
def test_on_whole_racks_a_level_for_each_takes_the_time_of_the_regular_network(
    rack: int, count: int, share: float, backend: Backend
) -> None:
    cluster = racks([rack] * count, share)
    node, rack_links = Level("node", 4, 50e9, 3e-6), Level("rack", rack, 25e9, 5e-6, 4)
    links = Network((node, rack_links, Level("cluster", count, 25e9 * rack * share, 5e-6, 4 * rack)))
    dims = (4, rack, count)
    placed = timing(Rings(dims, 4), cluster, names(cluster), backend)
    assert placed(5e7) == pytest.approx(regular.all_reduce(links, dims, backend)(5e7), rel=1e-9)


@given(st.sampled_from(shapes(16)), st.integers(7, 29), st.floats(0, 1))
def test_between_the_sizes_of_nccls_table_the_time_is_a_straight_line(
    dims: tuple[int, ...], power: int, part: float
) -> None:
    found = regular.all_reduce(nodes_of_4(4), dims, "nccl")
    low, high = (replace(found, phases=found.phases[:1])(float(1 << at)) for at in (power, power + 1))
    between = replace(found, phases=found.phases[:1])((1 << power) * (1 + part))
    assert between == pytest.approx(low + part * (high - low))
    assert low == pytest.approx(nccl.phase_s(found.phases[0], float(1 << power), 80))


def test_chunks_go_through_the_levels_side_by_side() -> None:
    """One chunk goes through all phases, and then the busiest link carries the others."""
    cluster = racks([2, 2], 1 / 8)
    found = timing(Rings((4, 2, 2), 4), cluster, names(cluster), "gloo")
    assert found.busiest_s_per_byte == pytest.approx(2 / 2 / (25e9 * 2 / 8)), "the uplinks: 2 (R-1)/R n"
    size = 64 * MIB
    carried_s = found.unchunked_s(size / 38) + 37 / 38 * size * found.busiest_s_per_byte
    assert carried_s <= found(size) <= carried_s * 1.01
    assert found(size) < 0.8 * found.unchunked_s(size)
    assert found(1000.0) == pytest.approx(found.unchunked_s(1000.0)), "a short vector is one chunk"


@pytest.mark.parametrize(("uplink_bits_per_s", "measured_s"), [(100e6, 0.380), (50e6, 0.691)])
def test_three_levels_on_two_racks_take_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, uplink_bits_per_s: float, measured_s: float
) -> None:
    """2 racks x 2 nodes x 2 ranks, nodes of 200 Mbit/s at 95.7 % goodput, 4 MB over gloo in 8 equal chunks."""
    monkeypatch.setattr(chunks, "SMALLEST_CHUNK_BYTES", 64 * 1024)
    goodput = 0.957 / 8
    node, uplink = Link(200e6 * goodput, 1e-3), Link(uplink_bits_per_s * goodput)
    two = racks([2, 2])
    hosts = tuple(replace(host, network=node) for host in two.hosts)
    switches = tuple(replace(s, uplink=s.uplink and uplink) for s in two.switches)
    cluster = Cluster(NodeType(2, (), node, Link(5e8, 1e-3)), hosts, switches)
    found = timing(Rings((2, 2, 2), 2), cluster, names(cluster), "gloo")
    assert found(4e6) == pytest.approx(measured_s, rel=0.1)
    assert timing(Rings((2, 4), 2), cluster, names(cluster), "gloo")(4e6) > 1.3 * found(4e6)


def measured_on_the_wire() -> list[tuple[str, list[str]]]:
    """The steps of the benchmark that a line of its results describes wholly: one group, hosts in our order."""
    lines = (ROOT / "benchmarks/results/predict-2026-11-21.txt").read_text().splitlines()
    end = lines.index("the worst:")
    return [(line, line.split()) for line in lines[:end] if " ours " in line and " one, " in line]


@pytest.mark.parametrize(("line", "words"), measured_on_the_wire())
def test_gloo_takes_what_was_measured_on_shaped_links(line: str, words: list[str]) -> None:
    """Fitted links and steps of `python -m benchmarks.predict`, whose torus sent a vector as one chunk."""
    text = (ROOT / "benchmarks/results/predict-2026-11-21.txt").read_text()
    rows = re.findall(r"^(\S+) +([\d.]+) Mbit/s +([\d.]+) ms", text, re.MULTILINE)
    links = {name: Link(float(rate) * 1e6 / 8, float(wait_ms) / 1e3) for name, rate, wait_ms in rows}
    per_node, dims = int(words[4][1:]), tuple(map(int, words[5].split("x")))
    node, hosts, switches = links["node"], list[Host](), [Switch("top")]
    for rack, (count, rate) in enumerate(part.split("@") for part in words[3].split("+")):
        fitted = links[f"uplink-{rate}"]
        wait_s = max(0.0, fitted.latency_s - node.latency_s) / 2
        switches.append(Switch(f"r{rack}", "top", Link(fitted.bandwidth_bytes_per_s, wait_s)))
        hosts += [Host(f"n{rack}{i}", f"r{rack}", node, per_node) for i in range(int(count))]
    known = Cluster(NodeType(per_node, (), node, links["inside"]), tuple(hosts), tuple(switches))
    order = arrange(dims, names(known), per_node, known).hosts
    all_s = timing(Rings(dims, per_node), known, order, "gloo").unchunked_s(float(words[7]) * 1e6)
    backward_s = float(words[-1]) * all_s
    error_percent = 100 * ((backward_s + all_s) / (float(words[2]) / 1e3) - 1)
    assert error_percent == pytest.approx(float(words[0]), abs=0.6), "no further from the measurement than then"


def test_the_hierarchical_all_reduce_by_nccl_by_hand() -> None:
    """16 nodes of 4: a chain in each node passes on the whole vector, then the first ranks all-reduce, and back."""
    found = cost_of(SyncKeys("hierarchical"), regular.RegularLayout(nodes_of_4(16), "nccl"), (4, 16))
    n = 64 * MIB
    chain_s = 8.4e-6 + 3 * 3.8e-6 + n / 60e9
    first_ranks = Network((Level("node", 1, 60e9, 1e-6), Level("cluster", 16, 20e9, 5e-6)))
    among_s = regular.all_reduce(first_ranks, (16,), "nccl")(n)
    assert found(n) == pytest.approx(2 * chain_s + among_s)


def test_gloo_passes_more_over_the_link_of_a_groups_first_rank() -> None:
    network = Network((Level("node", 4, 1e9, 0.0), Level("cluster", 2, 1e8, 0.0, 4)))
    found = cost_of(SyncKeys("hierarchical"), regular.RegularLayout(network, "gloo"), (4, 2))
    assert found(1e6) == pytest.approx(1e6 * ((1.5 + 2) / 1e9 + 1 / 1e8))


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_hybrid_is_hierarchical_below_so_many_bytes_and_flat_from_there_on(backend: Backend) -> None:
    layout, dims = regular.RegularLayout(nodes_of_4(16), backend), (4, 16)
    hybrid = cost_of(SyncKeys("hybrid"), layout, dims)
    hierarchical, flat = (cost_of(SyncKeys(name), layout, dims) for name in ("hierarchical", "flat"))
    assert hybrid(2**20 - 1) == hierarchical(2**20 - 1) and hybrid(2**20) == flat(2**20)
    spans = (Span(0, "flat"), Span(10**6, "torus"))
    auto = cost_of(SyncKeys("auto"), layout, dims, spans)
    assert auto(10**6 - 1) == flat(10**6 - 1) and auto(1e6) == layout.torus(dims)(1e6)
    assert cost_of(SyncKeys("flat"), layout, dims, spans)(1e6) == flat(1e6), "spans are those of auto"
    ddp = cost_of(SyncKeys("ddp"), layout, dims)(1e6)
    assert flat(1e6) == regular.all_reduce(nodes_of_4(16), (64,), backend)(1e6) == ddp
    assert cost_of(SyncKeys(), layout, dims)(1e6) == layout.torus(dims)(1e6)


@given(st.sampled_from([1, 2, 3, 4, 8]), backends, st.sampled_from([64.0, 1e4, 1e6, 1e8]), st.data())
def test_on_one_switch_given_hosts_take_the_time_of_the_regular_network_by_every_all_reduce(
    nodes: int, backend: Backend, size: float, data: st.DataObject
) -> None:
    cluster = one_switch(nodes, 1e11, 3e-6)
    name = data.draw(st.sampled_from(["torus", "flat", "hierarchical", "hybrid", "ddp"]))
    dims = data.draw(st.sampled_from([dims for dims in shapes(4 * nodes) if whole(dims)]))
    network = Network((Level("node", 4, 1e11, 1e-6), Level("cluster", nodes, 1e10, 3e-6, 4)))
    sync = SyncKeys(name)
    placed = cost_of(sync, HostsLayout(cluster, names(cluster), 4, backend), dims)
    assert placed(size) == pytest.approx(cost_of(sync, regular.RegularLayout(network, backend), dims)(size), rel=1e-9)


@given(st.integers(1, 6), st.sampled_from([1, 2, 3, 4, 6]), st.data())
def test_leaders_are_so_many_wherever_groups_end(nodes: int, per_node: int, data: st.DataObject) -> None:
    cluster = one_switch(nodes, 1e11, 3e-6)
    group = data.draw(st.sampled_from(divisors(nodes * per_node)))
    links = Network((Level("node", per_node, 1e11, 1e-6), Level("cluster", nodes, 1e10, 3e-6, per_node)))
    for layout in (HostsLayout(cluster, names(cluster), per_node, "gloo"), regular.RegularLayout(links, "gloo")):
        leaders = layout.leaders(group)
        assert leaders.ranks == nodes * per_node // group
        assert leaders.torus((leaders.ranks,))(1e6) >= 0


def test_grids_are_chosen_by_the_all_reduce_that_is_used() -> None:
    """Flat makes no use of a grid; the hierarchical one wants whole nodes for its groups."""
    cluster = one_switch(4, 1e11, 3e-6)
    flat = choices(names(cluster), 4, cluster, sync=SyncKeys("flat"))
    assert len({round(choice.total_s, 12) for choice in flat}) == 1
    assert choices(names(cluster), 4, cluster, 3e5, sync=SyncKeys("hierarchical"))[0].dims[0] == 4
