"""The map of a placement: numbers and bars agree, and the hottest link is named."""

import random
import re
from collections.abc import Mapping
from itertools import pairwise

import pytest

from torusrun.orchestrator.place.hosts.model import Cluster, Link, NodeType, Tree, cluster_of
from torusrun.orchestrator.place.placement.arrange import arrange
from torusrun.orchestrator.show.placement import MOST_LINKS, Map, map_of, unit_ms

NODE = NodeType(4, (), Link(22.5e9, 5e-6), Link(60e9, 3e-6))
PODS = {"rack1": "pod1", "rack2": "pod1", "rack3": "pod2", "rack4": "pod2"}
# (dims, nodes of the racks, racks' uplinks as a share, switches above)
CASES = {
    "4 nodes": ((4, 4), [2, 2], 1 / 2, {}),
    "16 nodes in 4 racks": ((4, 8, 2), [3, 5, 2, 6], 1 / 4, {}),
    "48 nodes in 4 racks": ((16, 12), [12] * 4, 1 / 3, {}),
    "two pods": ((4, 8, 2), [4] * 4, 1 / 2, PODS),
    "one rack": ((4, 4), [4], 1.0, {}),
    "864 nodes in 26 racks": ((48, 72), [34] * 25 + [14], 1 / 3, {}),
    "40 racks": ((160,), [1] * 40, 1.0, {}),
}


def mapped(dims: tuple[int, ...], sizes: list[int], share: float, parents: Mapping[str, str]) -> tuple[Map, Cluster]:
    hosts = [f"g{number:04}" for number in range(sum(sizes))]
    random.Random(1).shuffle(hosts)
    names = iter(hosts)
    leaves = {f"rack{i + 1}": [next(names) for _ in range(size)] for i, size in enumerate(sizes)}
    cluster = cluster_of(Tree(leaves, parents), NODE, share, "test")
    return map_of(arrange(dims, hosts, 4, cluster, effort=0), cluster), cluster


@pytest.fixture(params=CASES, scope="module")
def shown(request: pytest.FixtureRequest) -> Map:
    return mapped(*CASES[request.param])[0]


def test_the_longest_bar_has_the_largest_number_and_the_hottest_link_is_named(shown: Map) -> None:
    text, ours = shown.text(), shown.orders[0]
    lines = re.findall(r"^.*?([\d.]+)  (#+|\.)(  < hottest)?(?: |$)", text, re.MULTILINE)
    assert len(lines) >= min(len(shown.racks), MOST_LINKS), text
    by_number = sorted((float(ms), len(bar.strip("."))) for ms, bar, _ in lines)
    assert all(short <= long for (_, short), (_, long) in pairwise(by_number)), f"a bar contradicts its number:\n{text}"
    (hottest,) = [float(ms) for ms, _, mark in lines if mark]
    load = ours.loads.hottest
    assert load and hottest == max(float(ms) for ms, _, _ in lines) == round(unit_ms(load), 2)
    assert load.name in next(line for line in text.splitlines() if "< hottest" in line)
    assert len(text.splitlines()) <= 65, "too long for a terminal"


def test_many_racks_are_shortened_to_the_hottest() -> None:
    text = mapped(*CASES["40 racks"])[0].text()
    assert re.search(rf"^{40 - MOST_LINKS} more: [\d.]+ to [\d.]+ ms per 100 MB$", text, re.MULTILINE), text


def test_a_hot_link_above_the_racks_is_named() -> None:
    shown, _ = mapped((16,), [2, 2], 1.0, {"rack1": "pod1", "rack2": "pod2"})
    assert {"pod1", "pod2"} == {*shown.above}
    slow = cluster_of(
        Tree({"rack1": ["a", "b"], "rack2": ["c", "d"]}, {"rack1": "pod1", "rack2": "pod2"}),
        NODE,
        1.0,
        "test",
        {"pod2": 0.1},
    )
    found = map_of(arrange((16,), "abcd", 4, slow), slow)
    assert re.search("^ +pod2 .*< hottest", found.text(), re.MULTILINE)


def test_the_alphabetical_order_is_left_out_if_it_is_the_same() -> None:
    shown, _ = mapped(*CASES["one rack"])
    assert [order.name for order in shown.orders] == ["by the network"]
    assert "alphabetical" not in shown.text()
