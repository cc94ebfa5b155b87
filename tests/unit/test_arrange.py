"""Placement: what links carry, that small answers are the best there are, and that none is worse than its peers'."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.torus_cases import NODE, cheapest, every, grids, names, problem, racks, shuffled
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.place.hosts.model import Cluster, Link
from torusrun.orchestrator.place.placement.arrange import arrange, solve
from torusrun.orchestrator.place.placement.choose import by_switch
from torusrun.orchestrator.place.placement.fabric import fabric, loads
from torusrun.orchestrator.place.placement.problem import cut_bound_s_per_byte
from torusrun.orchestrator.place.placement.rings import Rings
from torusrun.orchestrator.place.placement.timing import timing

small = st.lists(st.integers(1, 4), min_size=1, max_size=4).filter(lambda sizes: 2 <= sum(sizes) <= 7)


def carried(dims: tuple[int, ...], cluster: Cluster, order: list[str], ranks_per_node: int = 4) -> dict[str, float]:
    found = loads(Rings(dims, ranks_per_node).levels, cluster, order).links
    return {load.name: round(load.bytes_per_byte, 6) for load in found}


def test_a_ring_of_nodes_loads_every_link_once_and_a_level_for_the_racks_lowers_that_of_their_uplink() -> None:
    two = racks([2, 2])
    assert carried((4, 4), two, names(two)) == dict.fromkeys(["r0n00", "r0n01", "r1n00", "r1n01", "r0", "r1"], 1.5)
    mixed = ["r0n00", "r1n00", "r0n01", "r1n01"]
    assert carried((4, 4), two, mixed)["r0"] == 3.0, "measured on shaped links: twice the bytes, 2.07 times the time"
    # 2 racks x 2 nodes x 2 ranks: 1.5 n over the uplink with the torus, 1.0 n with a level for the racks.
    two = racks([2, 2])
    for dims, least in (((2, 4), 1.5), ((2, 2, 2), 1.0), ((4, 2), 1.0)):
        assert carried(dims, two, names(two), 2)["r0"] == carried(dims, two, names(two), 2)["r1"] == least


def test_the_loads_of_four_racks_equal_those_of_an_independent_computation() -> None:
    """4 racks x 4 nodes x 4 GPUs, torus 4x16, figures of an independent computation."""
    four = racks([4] * 4)
    ordered = carried((4, 16), four, names(four))
    uplinks = {switch.name for switch in four.switches}
    assert max(bytes_ for name, bytes_ in ordered.items() if name not in uplinks) == 1.875
    assert max(bytes_ for name, bytes_ in ordered.items() if name in uplinks) == 1.875
    assert cut_bound_s_per_byte(fabric(four, four.hosts)) * 25e9 == pytest.approx(1.875), "the nodes' cut"
    thin = racks([4] * 4, 1 / 16)
    assert cut_bound_s_per_byte(fabric(thin, thin.hosts)) * 25e9 / 4 == pytest.approx(1.5), "the racks' cut"


@settings(max_examples=60, deadline=None)
@given(small, st.data())
def test_small_placements_equal_the_best_of_all(sizes: list[int], data: st.DataObject) -> None:
    cluster = racks(sizes, data.draw(st.sampled_from([1.0, 0.5, 0.25])), data.draw(st.sampled_from([None, 6])))
    dims = data.draw(st.sampled_from(grids(4 * sum(sizes))))
    asked = problem(dims, cluster, shuffled(cluster, 1))
    kinds, proved = solve(asked)
    best = cheapest(asked)
    assert proved and asked.cost(kinds) == best
    assert asked.bound <= best


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([(8, 3), (12, 4), (4, 8), (16, 2), (6, 4), (20, 2), (24, 2)]), st.integers(1, 11))
def test_no_set_of_nodes_sends_less_than_the_bound_of_the_grid(dims: tuple[int, int], below: int) -> None:
    nodes = dims[0] * dims[1] // 4
    below = min(below, nodes - 1)
    cluster = racks([below, nodes - below])
    asked = problem(dims, cluster, names(cluster))
    assert min(asked.uplink_bytes(kinds)[0] for kinds in every((below, nodes - below))) >= asked.fewest[0] - 1e-9


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(0, 9), st.data())
def test_never_worse_than_random_alphabetical_or_node_major(sizes: list[int], seed: int, data: st.DataObject) -> None:
    cluster = racks(sizes, 0.25, 9)
    dims = data.draw(st.sampled_from([grid for grid in grids(4 * sum(sizes)) if grid[0] % 4 == 0]))
    asked = problem(dims, cluster, shuffled(cluster, seed))
    mine = asked.cost(solve(asked, 20_000)[0])
    assert mine <= asked.cost(sorted(asked.fabric.kinds))
    chance = random.Random(seed)
    for _ in range(20):
        order = list(asked.fabric.kinds)
        chance.shuffle(order)
        assert mine <= asked.cost(order)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(2, 6), min_size=2, max_size=5), st.integers(0, 3), st.integers(0, 99))
def test_the_same_hosts_in_any_order_give_the_same_order_and_spares(sizes: list[int], spares: int, seed: int) -> None:
    cluster, positions = racks(sizes, 0.25, 9), sum(sizes) - spares
    first = arrange((4, positions), names(cluster), 4, cluster, effort=5_000)
    assert arrange((4, positions), shuffled(cluster, seed), 4, cluster, effort=5_000) == first


def test_broken_then_slow_nodes_are_the_spares() -> None:
    cluster = racks([3, 3])
    dead, slow = replace(cluster.hosts[1], gpus=3), replace(cluster.hosts[4], network=NODE.slowed(0.5))
    broken = replace(cluster, hosts=(cluster.hosts[0], dead, *cluster.hosts[2:4], slow, cluster.hosts[5]))
    found = arrange((4, 4), names(broken), 4, broken)
    assert set(found.spares) == {dead.name, slow.name}
    with pytest.raises(SiteError, match="needs 6 hosts, 5 are usable; fewer than 4 GPUs work on r0n01"):
        arrange((4, 6), names(broken), 4, broken)


def test_spares_are_chosen_so_that_racks_stay_whole() -> None:
    cluster = racks([4, 1, 4], 0.25, 4)
    found = arrange((16, 2), names(cluster), 4, cluster)
    assert found.spares == ("r1n00",) and found.optimal


def test_a_slow_uplink_gets_the_rack_that_crosses_it_least() -> None:
    cluster = racks([3, 5], 0.5, 5)
    slow = replace(cluster, switches=(*cluster.switches[:2], replace(cluster.switches[2], uplink=Link(1e9))))
    found = arrange((8, 4), shuffled(slow, 1), 4, slow)
    assert found.optimal and found.loads.hottest and found.loads.hottest.name == "r1"


def test_two_levels_of_switches() -> None:
    cluster = racks([2, 2, 2, 2])
    spines = [replace(s, name=f"s{i}", uplink=Link(25e9)) for i, s in enumerate(cluster.switches[1:3])]
    leaves = [replace(s, parent=f"s{i % 2}") for i, s in enumerate(cluster.switches[1:])]
    tall = replace(cluster, switches=(cluster.switches[0], *spines, *leaves))
    found = arrange((4, 8), shuffled(tall, 1), 4, tall)
    sides = [host[:2] in ("r0", "r2") for host in found.hosts]
    assert found.optimal and sum(a != b for a, b in zip(sides, sides[1:] + sides[:1], strict=True)) == 2


def test_3456_ranks_on_fragmented_racks_reach_the_bound() -> None:
    chance, sizes = random.Random(1), list[int]()
    while sum(sizes) < 864:
        sizes.append(min(chance.randint(20, 34), 864 - sum(sizes)))
    cluster = racks(sizes, 1 / 3, 34)
    order = shuffled(cluster, 1)
    found = arrange((48, 72), order, 4, cluster)
    assert found.over_bound == pytest.approx(1.0)
    assert found.loads.hop_bytes < 0.6 * loads(found.rings.levels, cluster, order).hop_bytes


def test_the_order_by_switch_is_leaf_after_leaf_and_by_name_within_one() -> None:
    two = racks([2, 3])
    assert by_switch(["r1n02", "r0n01", "r1n00", "r0n00"], two) == ["r0n00", "r0n01", "r1n00", "r1n02"]


def test_a_host_that_the_topology_does_not_know_or_knows_in_another_domain_is_refused() -> None:
    with pytest.raises(SiteError, match="the test lacks 1 of 2 hosts: x9"):
        arrange((4, 2), ["r0n00", "x9"], 4, racks([2]))
    two = racks([1, 1])
    east = replace(two, hosts=tuple(replace(host, name=f"{host.name}.east") for host in two.hosts))
    assert [host.name for host in east.only(["r0n00"])] == ["r0n00.east"]
    with pytest.raises(SiteError, match="lacks 1 of 1 hosts"):
        east.only(["r0n00.west"])


def test_between_racks_a_hop_waits_for_the_uplinks_too() -> None:
    two = racks([2, 2])
    far = replace(two, switches=tuple(replace(s, uplink=s.uplink and Link(1e9, 1e-3)) for s in two.switches))
    ordered, mixed = (["r0n00", "r0n01", "r1n00", "r1n01"], ["r0n00", "r1n00", "r0n01", "r1n01"])
    assert timing(Rings((4, 4), 4), far, ordered, "gloo")(0) == pytest.approx(2 * (3 * 3e-6 + 3 * 5e-6 + 2 * 2e-3)), (
        "three hops in the row; in the column three for the slowest chunk, of which two cross two uplinks each"
    )
    assert timing(Rings((4, 4), 4), far, mixed, "gloo")(0) == pytest.approx(2 * (3 * 3e-6 + 3 * 5e-6 + 3 * 2e-3))


def test_the_links_between_nodes_limit_a_row_over_two_nodes() -> None:
    """Rows of 8 over two nodes: a chunk has two slow hops, and a link has seven chunks to carry."""
    two = racks([2])
    found = timing(Rings((8, 1), 4), two, names(two), "gloo").phases[0]
    assert found.link_s_per_byte == pytest.approx(7 / 8 / 25e9)
    assert found.chunk_s_per_byte == pytest.approx((2 * 7 / 8 / 25e9 + 5 * 7 / 8 / 50e9) / 7)
