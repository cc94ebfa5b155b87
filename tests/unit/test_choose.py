"""The choice of a grid: near the best of all shapes, the same for every verb, and with its reason."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.unit.torus_cases import every, names, racks, shuffled
from torusrun.orchestrator.place.cost.all_reduce import Backend
from torusrun.orchestrator.place.cost.shapes import shapes
from torusrun.orchestrator.place.hosts.model import Cluster
from torusrun.orchestrator.place.placement.arrange import Charge, arrange, cheapest
from torusrun.orchestrator.place.placement.choose import choices
from torusrun.orchestrator.place.placement.fabric import fabric
from torusrun.orchestrator.place.placement.rings import Rings
from torusrun.orchestrator.place.placement.timing import timing


def drawn(seed: int) -> tuple[Cluster, int, float]:
    """(Some racks of 2 to 6 nodes in all, ranks to a node, bytes of gradient)."""
    chance, counts = random.Random(seed), list[int]()
    while not 2 <= sum(counts) <= 6:
        counts = [chance.randint(1, 4) for _ in range(chance.randint(1, 4))]
    cluster = racks(counts, chance.choice([1.0, 0.5, 0.25, 0.125]))
    return cluster, chance.choice([1, 2, 4]), chance.choice([1e4, 1e6, 1e7, 5e7])


def least_s(cluster: Cluster, per_node: int, size: float, backend: Backend) -> float:
    """The least time over all shapes and all orders; of racks with as many hosts, the first named comes first."""
    tree, every_s = fabric(cluster, cluster.hosts), list[float]()
    alike = [(a, b) for a in range(len(tree.counts)) for b in range(a) if tree.counts[a] == tree.counts[b]]
    for kinds in every(tree.counts):
        if all(kinds.index(b) < kinds.index(a) for a, b in alike):
            order = [host.name for host in tree.order(kinds)]
            for dims in shapes(per_node * len(order)):
                every_s.append(timing(Rings(dims, per_node), cluster, order, backend)(size))
    return min(every_s)


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_the_choice_is_at_most_2_percent_behind_the_best_of_all_shapes_and_orders(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 clusters drawn at random against an exhaustive search; the choice may time 150 orders of a shape at most."""
    timed, charged_s = list[Rings](), Charge.time_s

    def counted_s(charge: Charge, rings: Rings, known: Cluster, order: Sequence[str]) -> float:
        timed.append(rings)
        return charged_s(charge, rings, known, order)

    monkeypatch.setattr(Charge, "time_s", counted_s)
    behind, orders = dict[int, float](), list[int]()
    for seed in range(100):
        cluster, per_node, size = drawn(seed)
        timed.clear()
        found = choices(shuffled(cluster, seed), per_node, cluster, size, backend)[0]
        orders.append(len(timed))
        behind[seed] = found.total_s / least_s(cluster, per_node, size, backend)
    worse = {seed: f"{ratio:.3f}" for seed, ratio in behind.items() if ratio > 1.02 + 1e-9}
    assert not worse, f"times of the exhaustive search by seed of drawn(): {worse}"
    assert min(behind.values()) > 1 - 1e-9, "the exhaustive search missed an order"
    assert sum(orders) / len(orders) < 100 and max(orders) < 600, f"orders timed for a choice: {sorted(orders)}"


@pytest.mark.parametrize(("positions", "most"), [(12, 150), (64, 31), (500, 4), (1_001, 0), (25_000, 0)])
def test_few_orders_of_many_hosts_are_timed(positions: int, most: int) -> None:
    """Any order is slower than the one with the leaves in the middle: the search would never end by itself soon."""
    timed = list[tuple[int, ...]]()

    def time_s(kinds: Sequence[int]) -> float:
        timed.append(tuple(kinds))
        return 1.0 + sum(abs(2 * place - positions) * kind for place, kind in enumerate(kinds)) / positions**2

    start = [place % 3 for place in range(positions)]
    found = cheapest([start], time_s)
    assert len(timed) == len(set(timed)) <= most, f"{len(timed)} orders were timed"
    assert sorted(found) == sorted(start) and (found == start or time_s(found) < time_s(start))


def test_the_same_hosts_give_the_same_choice() -> None:
    cluster = racks([3, 5, 2, 6], 0.25)
    first = choices(names(cluster), 4, cluster)
    assert choices(shuffled(cluster, 2), 4, cluster, nodes=16)[0].dims == first[0].dims
    assert choices(names(cluster), 4, cluster) == first
    assert [c.total_s for c in first[1:]] == sorted(c.total_s for c in first[1:])


@pytest.mark.parametrize(
    ("counts", "share", "backend", "reason"),
    [
        ([1], 1.0, "nccl", "1 level: all ranks in one group; 1.58 ms"),
        ([2, 2], 0.25, "gloo", "3 levels: a row is a node, racks are 4:1 oversubscribed; 4.22 ms against 6.2 for 4x4"),
    ],
)
def test_the_reason_says_what_speaks_for_a_shape(
    counts: list[int], share: float, backend: Backend, reason: str
) -> None:
    cluster = racks(counts, share)
    assert choices(names(cluster), 4, cluster, backend=backend)[0].reason == reason


def test_many_nodes_are_chosen_for_by_the_regular_network() -> None:
    """The whole list of shapes is placed for comparison."""
    cluster = racks([8] * 6, 0.25)
    found = choices(names(cluster), 4, cluster, backend="gloo")[0]
    placed = [arrange(dims, names(cluster), 4, cluster, effort=0) for dims in shapes(192)]
    times = [timing(p.rings, cluster, p.hosts, "gloo")(51_114_064) for p in placed]
    assert found.total_s <= 1.03 * min(times)


@pytest.mark.parametrize(
    "counts, row", [([18], 72), ([18, 18], 72), ([18, 6], 24), ([6, 6, 6], 24), ([3, 2], 4), ([1, 1], 4)]
)
def test_a_row_is_an_nvlink_domain_or_the_longest_equal_part_of_each(counts: list[int], row: int) -> None:
    cluster = replace(racks(counts, 1 / 18), nvlink=True)
    found = choices(shuffled(cluster, 1), 4, cluster, 5e7)
    assert {choice.dims[0] for choice in found} == {row}
    leaves = [cluster.host[name].leaf for name in found[0].arrangement.hosts]
    nodes = row // 4
    assert all(len({*leaves[at : at + nodes]}) == 1 for at in range(0, len(leaves), nodes)), "a row leaves its domain"
    assert ("NCCL's own all-reduce" in found[0].reason) == (row > 4)
