"""The exact plan against every other plan, and the plans by number and size."""

from __future__ import annotations

from itertools import combinations
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torusrun.orchestrator.forecast.step import ready_s, resnet50
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


def test_of_equal_times_fewer_buckets_are_taken() -> None:
    assert plans.best_buckets([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], lambda size: size) == (3,)


def test_plans_by_number_and_by_size() -> None:
    assert plans.equal_buckets([1.0] * 8, 4) == (2, 2, 2, 2)
    assert plans.capped_buckets([1.0, 5.0, 1.0, 1.0], 5.0) == (2, 2)
    assert plans.by_shape("ddp", [2.0**20] * 60) == (1, 25, 25, 9), "1 MiB, then 25 MiB"
    assert plans.by_shape("one", [1.0, 2.0]) == (2,)


def test_fujitsus_groups_are_those_of_resnet50_and_the_same_shares_of_other_models() -> None:
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
