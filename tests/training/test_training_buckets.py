"""The exact plan against every other plan, the plans by number and size, and costs against packets."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import prod
from random import Random
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.packets.gloo import HEADER_BYTES, Gloo, Program
from benchmarks.packets.schedule import ITEM_BYTES, Job, gloo_ring, torus
from benchmarks.packets.simulate import Placed
from benchmarks.packets.stream import PACKET_BYTES, Stream
from benchmarks.packets.wire import Clock, OneWay
from tests.unit.torus_cases import names
from torusrun.orchestrator.forecast.step import ready_s, resnet50
from torusrun.orchestrator.place.hosts.model import Cluster, Host, Link, NodeType, Switch
from torusrun.orchestrator.place.placement.timing import HostsLayout
from torusrun.training.sync import plans
from torusrun.training.sync.planner import MeasuredCost
from torusrun.training.sync.plans import Layout, expected_order

ALPHA, BETA, BEND = st.floats(0, 1e-2), st.floats(0, 1e-8), st.floats(0.3, 1)


def every_plan(count: int) -> list[tuple[int, ...]]:
    cuts = [c for k in range(count) for c in combinations(range(1, count), k)]
    return [tuple(b - a for a, b in zip((0, *c), (*c, count), strict=True)) for c in cuts]


@settings(max_examples=300)
@given(st.lists(st.tuples(st.floats(0, 1e-2), st.floats(1, 1e7)), min_size=1, max_size=9), ALPHA, BETA, BEND)
def test_no_other_plan_ends_earlier(layers: list[tuple[float, float]], alpha: float, beta: float, bend: float) -> None:
    def cost(size: float) -> float:
        return alpha + beta * size**bend

    ready, sizes = sorted(r for r, _ in layers), [s for _, s in layers]
    found = plans.best_buckets(ready, sizes, cost)
    assert sum(found) == len(sizes)
    ends = {one: plans.end_s(ready, sizes, cost, one) for one in every_plan(len(sizes))}
    assert ends[found] == pytest.approx(min(ends.values()))


@settings(deadline=None)
@given(ALPHA, BETA, BEND, st.floats(0.001, 1), st.data())
def test_the_exact_plan_of_resnet50_is_never_worse_than_another(
    alpha: float, beta: float, bend: float, backward_s: float, data: st.DataObject
) -> None:
    def cost(size: float) -> float:
        return alpha + beta * size**bend

    layers = resnet50()
    ready, sizes = ready_s(layers, backward_s), [2.0 * layer.parameters for layer in layers]
    cuts = sorted(data.draw(st.sets(st.integers(1, len(sizes) - 1), max_size=30)))
    others = [plans.by_shape(name, sizes) for name in get_args(plans.Shape)]
    others.append(tuple(b - a for a, b in zip([0, *cuts], [*cuts, len(sizes)], strict=True)))
    best = plans.end_s(ready, sizes, cost, plans.best_buckets(ready, sizes, cost))
    assert all(best <= plans.end_s(ready, sizes, cost, other) * (1 + 1e-12) for other in others)


def test_plans_by_number_by_size_and_by_fujitsus_groups() -> None:
    assert plans.best_buckets([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], lambda size: size) == (3,)
    assert plans.equal_buckets([1.0] * 8, 4) == (2, 2, 2, 2)
    assert plans.capped_buckets([1.0, 5.0, 1.0, 1.0], 5.0) == (2, 2)
    assert plans.by_shape("ddp", [2.0**20] * 60) == (1, 25, 25, 9), "1 MiB, then 25 MiB"
    assert plans.by_shape("one", [1.0, 2.0]) == (2,)
    assert plans.fujitsu_buckets([1.0] * 161) == (3, 21, 57, 80)
    assert plans.fujitsu_buckets([1.0] * 1610) == (30, 210, 570, 800)
    assert plans.fujitsu_buckets([1.0]) == (1,)


@given(st.lists(st.floats(1, 1e8), min_size=1, max_size=200))
def test_every_gradient_is_in_one_bucket(sizes: list[float]) -> None:
    for name in get_args(plans.Shape):
        buckets = plans.by_shape(name, sizes)
        assert sum(buckets) == len(sizes) and all(each > 0 for each in buckets)


def test_a_measured_cost_passes_through_its_measurements_and_extends_beyond_them() -> None:
    cost = MeasuredCost([(100, 1.0), (200, 3.0), (300, 2.0), (400, 5.0)])
    assert [cost(size) for size in (1, 100, 150, 200, 300, 500)] == [1.0, 1.0, 2.0, 3.0, 3.0, 7.0]
    assert MeasuredCost([(100, 1.0)])(1e6) == 1.0


@given(st.lists(st.tuples(st.floats(1, 1e8), st.floats(0, 10)), min_size=1, max_size=8, unique_by=lambda row: row[0]))
def test_more_bytes_never_cost_less(table: list[tuple[float, float]]) -> None:
    cost = MeasuredCost(sorted(table))
    sizes = sorted([size * factor for size, _ in table for factor in (0.5, 1.0, 1.7)])
    costs = [cost(size) for size in sizes]
    assert all(more >= less - 1e-9 for less, more in zip(costs, costs[1:], strict=False))


def test_a_layout_names_the_gradients_of_each_bucket() -> None:
    assert Layout((2, 0, 1), (1, 2)).buckets == [(2,), (0, 1)]
    assert Layout(expected_order(3), (3,)).buckets == [(2, 1, 0)]
    for order, counts in (((0, 0, 1), (3,)), ((0, 1), (1,)), ((0, 1), (2, 0)), ((0, 2), (2,))):
        with pytest.raises(ValueError, match="do not hold each"):
            Layout(order, counts)


# The simulation of packets: closed forms, the rules of its connections, and its agreement with the formulas.


RATE = 1e7  # bytes per second
MOST_PACKETS = 20_000  # of a simulation, before each link is counted; larger vectors get larger packets


def cluster(sizes: list[int], uplink: float = RATE, latency_s: float = 0.0, per_node: int = 1) -> Cluster:
    """Racks of so many hosts."""
    link = Link(RATE, latency_s)
    leaves = [Switch(f"r{i}", "top", Link(uplink)) for i in range(len(sizes))]
    hosts = tuple(Host(f"r{i}n{j}", f"r{i}", link, per_node) for i, n in enumerate(sizes) for j in range(n))
    return Cluster(NodeType(per_node, (), link, Link(1e10)), hosts, (Switch("top"), *leaves))


def all_reduce_s(known: Cluster, dims: tuple[int, ...], size: int, per_node: int = 1) -> float:
    jobs = [Job(0.0, size // 4)]
    placed = Placed(known, names(known), per_node)
    (found,) = placed.rounds_s(lambda gloo, rank: torus(gloo, dims, rank, jobs, 2 * len(dims) + 1))
    return found


def second_round_s(known: Cluster, dims: tuple[int, ...], size_bytes: float, per_node: int) -> float:
    """Connections have grown their windows in the first round."""
    elements = -(-int(size_bytes / ITEM_BYTES) // prod(dims)) * prod(dims)
    packet_bytes = max(PACKET_BYTES, 2 * size_bytes * prod(dims) / MOST_PACKETS)
    placed, jobs = Placed(known, names(known), per_node, packet_bytes=packet_bytes), [Job(0.0, elements)]
    return placed.rounds_s(lambda gloo, rank: torus(gloo, dims, rank, jobs, 2 * len(dims) + 1), 2)[1]


@given(st.integers(1, 10**6), st.floats(0, 0.01))
def test_a_message_over_an_idle_way_takes_its_latency_and_its_bytes(size: int, latency_s: float) -> None:
    clock, ends = Clock(), list[float]()
    ways = [OneWay(1 / rate) for rate in (2 * RATE, RATE, 3 * RATE)]
    Stream(clock, ways, 0.0).put(size, lambda: ends.append(clock.now_s))
    clock.run()
    assert ends == [pytest.approx(size / RATE)], "a switch forwards while it receives: only the slowest link counts"
    clock, ends = Clock(), []
    Stream(clock, [OneWay(1 / RATE)], latency_s).put(10, lambda: ends.append(clock.now_s))
    clock.run()
    assert ends == [pytest.approx(latency_s + 10 / RATE)]


def test_connections_share_a_full_link_equally() -> None:
    clock, link, ends = Clock(), OneWay(1 / RATE), list[float]()
    for _ in range(2):
        Stream(clock, [OneWay(1 / RATE), link], 0.0).put(1e6, lambda: ends.append(clock.now_s))
    clock.run()
    assert ends == [pytest.approx(2e6 / RATE, rel=0.03)] * 2


def test_data_leaves_only_when_its_receiver_is_ready() -> None:
    clock, ends = Clock(), list[float]()
    gloo = Gloo(clock, lambda a, b: Stream(clock, [OneWay(1 / RATE)], 0.0), 0.0, Random(0))

    def sender() -> Program:
        yield gloo.send(0, 0, 1, 1e5)

    def receiver() -> Program:
        yield 0.5
        yield gloo.receive(0, 1, 0)

    for program in (sender(), receiver()):
        gloo.run(program, lambda: ends.append(clock.now_s))
    clock.run()
    assert 0.5 < min(ends) <= max(ends) == pytest.approx(0.5 + (1e5 + HEADER_BYTES) / RATE, abs=2e-5)


@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
@pytest.mark.parametrize("latency_s", [0.0, 1e-3])
def test_a_ring_without_contention_takes_its_closed_form(ranks: int, latency_s: float) -> None:
    """2(N-1) a + 2(N-1)/N n/B (Patarasuk and Yuan 2009), and headers, and the first note."""
    size = 400_000 * ranks
    known = cluster([ranks], latency_s=latency_s)
    hops = 2 * (ranks - 1)
    exact = hops * (latency_s + size / ranks / RATE)
    assert exact <= all_reduce_s(known, (ranks,), size) <= 1.01 * exact + latency_s
    ring = Placed(known, names(known), 1)
    (of_gloo,) = ring.rounds_s(lambda gloo, rank: [gloo_ring(gloo, 0, range(ranks), rank, size // 4)])
    assert hops * size / ranks / RATE <= of_gloo <= 1.01 * exact + 2 * latency_s, "two segments hide latencies"


def test_the_same_simulation_has_the_same_bits_and_rounds_may_differ() -> None:
    known = cluster([3, 2], uplink=RATE / 2, per_node=2)
    placed = Placed(known, names(known), 2, burst_bytes=32768, handling_s=3e-4)
    first, second = (
        placed.rounds_s(lambda gloo, rank: torus(gloo, (5, 2), rank, [Job(0.0, 10**5)], 1), 3) for _ in range(2)
    )
    assert first == second and len(first) == 3


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_formulas_and_packets_agree_if_all_groups_of_a_phase_are_alike(data: st.DataObject) -> None:
    """On one switch no group is ahead of the others, so nobody takes bandwidth from a phase before."""
    nodes, per_node = data.draw(st.integers(2, 6), "nodes"), data.draw(st.sampled_from([1, 2]), "per_node")
    ranks = nodes * per_node
    x = data.draw(st.sampled_from([d for d in range(1, ranks + 1) if ranks % d == 0]), "x")
    known = cluster([nodes], per_node=per_node)
    known = replace(known, node=replace(known.node, intra_node=Link(1e12)))
    layout = HostsLayout(known, names(known), per_node, "gloo")
    found_s = second_round_s(known, (x, ranks // x), 800_000, per_node)
    assert found_s == pytest.approx(layout.torus((x, ranks // x))(800_000), rel=0.08)
