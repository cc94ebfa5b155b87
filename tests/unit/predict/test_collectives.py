"""The all-reduces of older programs, the bounds, and the schemes of the sweep."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torusrun.orchestrator.place.cost import regular
from torusrun.orchestrator.place.cost.links import Level, Network
from torusrun.orchestrator.predict.model import schemes
from torusrun.orchestrator.predict.model.collectives import cut_s, halving_s, leaders_s

RESNET50_BYTES = 51.1e6


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


@pytest.mark.parametrize(("ranks", "milliseconds"), [(1024, 11.7), (2048, 18.9), (3456, 28.8)])
def test_plain_rings_on_abci_take_the_times_computed_by_hand(ranks: int, milliseconds: float) -> None:
    assert regular.ring_s(RESNET50_BYTES, abci(ranks)) * 1e3 == pytest.approx(milliseconds, rel=0.01)


def test_the_bound_on_abci_is_that_computed_by_hand() -> None:
    assert cut_s(RESNET50_BYTES, abci(2048)) * 1e3 == pytest.approx(4.54, rel=0.01)


def test_each_formula_by_hand() -> None:
    network, n, a, b = flat(8), 8e6, 1e-6, 10e9
    assert regular.ring_s(n, network) == pytest.approx(14 * a + 14 / 8 * n / b)
    assert halving_s(n, network) == pytest.approx(6 * a + 14 / 8 * n / b)
    pairs = Network((Level("node", 2, b, a), Level("cluster", 4, b / 2, 2 * a, 2)))
    expected = 2 * (a + n / b) + 6 * 2 * a + 6 / 4 * n / (b / 2)
    assert leaders_s(n, pairs) == pytest.approx(expected)


@given(networks(), sizes, sizes)
def test_more_bytes_never_take_less_time(network: Network, one: float, other: float) -> None:
    few, many = sorted((one, other))
    for make in schemes.FLAT.values():
        assert make(network)(few) <= make(network)(many) * (1 + 1e-12)


@given(networks(), sizes)
def test_no_scheme_is_faster_than_the_bandwidth_bound(network: Network, size: float) -> None:
    bound = cut_s(size, network) * (1 - 1e-9)
    for name in ("ring", "leaders", "tree", "plain"):
        assert schemes.FLAT[name](network)(size) >= bound
    assert schemes.best_levels(network, size).cost_s(size) >= bound


@given(networks())
def test_one_rank_takes_no_time(network: Network) -> None:
    for make in schemes.FLAT.values():
        assert make(network.holding(1))(1e6) == 0


def test_large_messages_cost_bandwidth_and_empty_ones_latency() -> None:
    network = flat(16)
    assert regular.ring_s(0, network) == pytest.approx(30e-6)
    assert regular.ring_s(1e15, network) == pytest.approx(cut_s(1e15, network))
