"""The cost formulas: published anchors, and what must hold for any network."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.predict import schemes
from orchestrator.predict.collectives import (
    bounds,
    halving,
    hierarchical,
    levels,
    ring,
    torus,
    tree,
)
from orchestrator.predict.collectives.links import chain
from orchestrator.predict.network import Level, Network

RESNET50_BYTES = 51.1e6
ALL = [schemes.flat_ring, schemes.double_tree, schemes.halving_doubling, schemes.leaders, schemes.nccl]


def abci(ranks: int) -> Network:
    return Network((Level("node", 4, 60e9, 3e-6), Level("cluster", ranks // 4, 22.5e9, 5e-6, 4)))


def flat(ranks: int, bandwidth: float = 10e9, latency: float = 1e-6) -> Network:
    return Network((Level("switch", ranks, bandwidth, latency),))


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """A node and a cluster, the node's links at least as fast."""
    gpus, nodes = draw(st.integers(1, 8)), draw(st.integers(1, 40))
    outer, times = draw(st.floats(1e8, 1e11)), draw(st.floats(1, 20))
    near, far = draw(st.floats(1e-7, 1e-5)), draw(st.floats(1, 10))
    return Network((Level("node", gpus, outer * times, near), Level("cluster", nodes, outer, near * far, gpus)))


sizes = st.floats(0, 1e9)


@pytest.mark.parametrize(
    ("ranks", "ring_ms", "x4_ms", "x64_ms"),
    [(1024, 11.7, None, 5.40), (2048, 18.9, 11.0, 5.57), (3456, 28.8, 14.5, 5.79)],
)
def test_rings_and_tori_on_abci_take_the_times_computed_by_hand(
    ranks: int, ring_ms: float, x4_ms: float | None, x64_ms: float
) -> None:
    network = abci(ranks)
    assert ring.all_reduce_s(RESNET50_BYTES, chain(network, ranks)) * 1e3 == pytest.approx(ring_ms, rel=0.01)
    assert torus.all_reduce_s(RESNET50_BYTES, network, 64, ranks // 64, "ring") * 1e3 == pytest.approx(x64_ms, rel=0.02)
    if x4_ms:
        assert torus.all_reduce_s(RESNET50_BYTES, network, 4, ranks // 4, "ring") * 1e3 == pytest.approx(
            x4_ms, rel=0.01
        )


def test_the_tree_and_the_bound_on_abci_take_the_times_computed_by_hand() -> None:
    assert tree.all_reduce_s(RESNET50_BYTES, abci(2048)) * 1e3 == pytest.approx(5.07, rel=0.01)
    assert bounds.cut_s(RESNET50_BYTES, abci(2048)) * 1e3 == pytest.approx(4.54, rel=0.01)


def test_each_formula_by_hand() -> None:
    network, n, a, b = flat(8), 8e6, 1e-6, 10e9
    assert ring.all_reduce_s(n, chain(network, 8)) == pytest.approx(14 * a + 14 / 8 * n / b)
    assert halving.all_reduce_s(n, network) == pytest.approx(6 * a + 14 / 8 * n / b)
    pairs = Network((Level("node", 2, b, a), Level("cluster", 4, b / 2, 2 * a, 2)))
    expected = 2 * (a + n / b) + 6 * 2 * a + 6 / 4 * n / (b / 2)
    assert hierarchical.all_reduce_s(n, pairs) == pytest.approx(expected)
    assert tree.all_reduce_s(n, pairs) == pytest.approx(2 * (a + 2 * 2 * a) + 2 * n / (0.92 * b / 2))
    expected = 2 * a + n / b + 6 * 2 * a + 6 / 4 * (n / 2) / (b / 4)
    assert torus.all_reduce_s(n, pairs, 2, 4, "ring") == pytest.approx(expected)


@given(networks(), sizes, sizes)
def test_more_bytes_never_take_less_time(network: Network, one: float, other: float) -> None:
    few, many = sorted((one, other))
    for make in ALL:
        assert make(network).cost_s(few) <= make(network).cost_s(many)


@given(networks(), sizes)
def test_a_torus_of_one_column_or_one_row_is_a_ring(network: Network, size: float) -> None:
    around = ring.all_reduce_s(size, chain(network, network.ranks))
    assert torus.all_reduce_s(size, network, network.ranks, 1, "ring") == pytest.approx(around)
    assert torus.all_reduce_s(size, network, 1, network.ranks, "ring") == pytest.approx(around)
    assert levels.all_reduce_s(size, network, (network.ranks,)) == pytest.approx(around)


@given(networks(), sizes, st.integers(1, 8), st.integers(1, 8))
def test_a_torus_is_two_levels(network: Network, size: float, x: int, y: int) -> None:
    assert torus.all_reduce_s(size, network, x, y, "ring") == pytest.approx(levels.all_reduce_s(size, network, (x, y)))
    assert torus.all_reduce_s(size, network, x, y) <= torus.all_reduce_s(size, network, x, y, "ring")


@given(st.lists(st.integers(1, 20), min_size=1, max_size=4), sizes)
def test_all_levels_together_send_as_much_as_a_ring(dims: list[int], size: float) -> None:
    assert levels.sent_bytes(size, dims) == pytest.approx(ring.sent_bytes(size, prod(dims)), abs=1e-6)


@given(networks(), sizes)
def test_no_scheme_is_faster_than_the_bandwidth_bound(network: Network, size: float) -> None:
    bound = bounds.cut_s(size, network) * (1 - 1e-9)
    for scheme in (schemes.flat_ring(network), schemes.leaders(network), schemes.double_tree(network)):
        assert scheme.cost_s(size) >= bound
    assert schemes.best_cascade(network, size).cost_s(size) >= bound


@given(networks())
def test_one_rank_takes_no_time(network: Network) -> None:
    for make in ALL:
        assert make(network.holding(1)).cost_s(1e6) == 0


def test_large_messages_cost_bandwidth_and_empty_ones_latency() -> None:
    network = flat(16)
    assert ring.all_reduce_s(0, chain(network, 16)) == pytest.approx(30e-6)
    assert ring.all_reduce_s(1e15, chain(network, 16)) == pytest.approx(bounds.cut_s(1e15, network))
    assert bounds.latency_s(network) == pytest.approx(4e-6)


def test_columns_share_the_links_of_a_node_and_rows_do_not() -> None:
    network = abci(64)
    assert chain(network, 16, 4).bandwidth_bytes_per_s == 22.5e9 / 4
    assert chain(network, 64).bandwidth_bytes_per_s == 22.5e9
    assert chain(network, 4).bandwidth_bytes_per_s == 60e9
