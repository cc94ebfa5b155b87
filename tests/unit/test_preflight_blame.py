"""Which pairs of nodes are measured, and who is blamed: properties over many numbers of nodes and faults."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torusrun.orchestrator.nodes.connections import schedule
from torusrun.orchestrator.nodes.findings import MeasuredPair
from torusrun.orchestrator.nodes.judge import SLOW, Blame, blamed, suspects

FAST = 1e9
COUNTS = st.integers(2, 130)


def hosts(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


def measured(count: int, slow: dict[frozenset[str], float], noise: list[float]) -> list[MeasuredPair]:
    """Each pair at FAST times a value of the noise; pairs with the hosts in a key of `slow` are slower by its value."""
    found = []
    for number, pairs in enumerate(schedule(hosts(count))):
        for pair in pairs:
            keys = (frozenset(pair), *(frozenset({host}) for host in pair))
            factor = math.prod(slow.get(key, 1.0) for key in keys)
            found.append(MeasuredPair(number, *pair, FAST * noise[len(found) % len(noise)] * factor))
    return found


@given(COUNTS)
def test_every_node_is_measured_with_several_others_and_with_none_twice(count: int) -> None:
    rounds = schedule(hosts(count))
    assert len(rounds) <= math.ceil(math.log2(count)) + 1
    met: dict[str, list[str]] = {host: [] for host in hosts(count)}
    for pairs in rounds:
        assert len({host for pair in pairs for host in pair}) == 2 * len(pairs) >= count - 1
        for first, second in pairs:
            met[first].append(second)
            met[second].append(first)
    assert all(len({*others}) == len(others) >= min(2, count - 1) for others in met.values())


@pytest.mark.parametrize(("count", "most"), [(1, 0), (2, 1), (3, 3), (4, 3), (64, 7), (128, 8), (1000, 11)])
def test_the_rounds_grow_with_the_logarithm(count: int, most: int) -> None:
    assert len(schedule(hosts(count))) == most


NOISE = st.lists(st.floats(0.8, 1.2), min_size=1, max_size=20)


@given(st.integers(3, 130), st.data(), NOISE, st.floats(0.0, 0.2))
def test_a_single_bad_node_is_named_and_no_other(
    count: int, data: st.DataObject, noise: list[float], factor: float
) -> None:
    bad = data.draw(st.sampled_from(hosts(count)))
    found = measured(count, {frozenset({bad}): factor}, noise)
    assert blamed(found) == Blame((bad,))
    ((suspect, partner),) = again = suspects(found, None, [])
    assert suspect == bad != partner
    confirmed = [*found, MeasuredPair(found[-1].round + 1, bad, partner, FAST * factor)]
    assert blamed(confirmed) == Blame((bad,)) and not suspects(confirmed, None, again)
    acquitted = [*found, MeasuredPair(found[-1].round + 1, bad, partner, FAST)]
    assert bad not in blamed(acquitted).hosts, "measured once more, it was only short of a core"


@given(st.integers(4, 130), st.data(), NOISE, st.floats(0.0, 0.2))
def test_a_single_bad_link_is_named_and_no_host(
    count: int, data: st.DataObject, noise: list[float], factor: float
) -> None:
    bad = data.draw(st.sampled_from([pair for pairs in schedule(hosts(count)) for pair in pairs]))
    found = measured(count, {frozenset(bad): factor}, noise)
    assert blamed(found).hosts == () and [pair.hosts for pair in blamed(found).links] == suspects(found, None, []) == [
        bad
    ]
    assert blamed([*found, MeasuredPair(found[-1].round + 1, *bad, FAST)]) == Blame()


@given(COUNTS, st.lists(st.floats(SLOW * 1.25, 1.25), min_size=1, max_size=50).filter(lambda n: max(n) <= 1.0))
def test_nobody_is_blamed_for_noise_within_the_limit(count: int, noise: list[float]) -> None:
    assert blamed(measured(count, {}, noise)) == Blame()


@given(st.integers(8, 130), NOISE)
def test_a_network_with_a_slow_middle_is_compared_with_itself(count: int, noise: list[float]) -> None:
    """All pairs that cross from one half to the other are five times slower."""
    half = {*hosts(count)[: count // 2]}
    cross = {frozenset(pair): 0.2 for pairs in schedule(hosts(count)) for pair in pairs if len(half & {*pair}) == 1}
    assert not blamed(measured(count, cross, noise)).hosts


@pytest.mark.parametrize(
    ("speeds", "least", "expected", "links"),
    [
        ({"ab": 0.1}, None, (), []),  # one pair has nothing to be compared with
        ({"ab": 0.1}, FAST / 2, (), ["ab"]),  # and shows that one of two is slow
        ({"ab": 0.1, "ac": 0.1, "bc": 1}, None, ("a",), []),
        ({"ab": 0.1, "ac": 1, "bc": 1}, None, (), ["ab"]),
        ({"ab": 0.1, "ac": 0.1, "bc": 0.1}, FAST / 2, (), ["ab", "ac", "bc"]),  # all slow: no evidence against one
        ({"ab": 0, "ac": 0, "bc": 0}, None, (), []),  # a firewall
    ],
)
def test_two_or_three_nodes(
    speeds: dict[str, float], least: float | None, expected: tuple[str, ...], links: list[str]
) -> None:
    found = blamed([MeasuredPair(n, *pair, FAST * speed) for n, (pair, speed) in enumerate(speeds.items())], least)
    assert (found.hosts, ["".join(pair.hosts) for pair in found.links]) == (expected, links)
