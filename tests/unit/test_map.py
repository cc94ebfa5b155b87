"""The picture of a placement: numbers, bars and colours agree, nothing lies outside, the hottest link is named."""

import random
import re
from collections.abc import Mapping
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from torusrun.orchestrator.place.hosts.model import Cluster, Link, NodeType, Tree, cluster_of
from torusrun.orchestrator.place.placement.arrange import arrange
from torusrun.orchestrator.show import map_svg
from torusrun.orchestrator.show.map import MOST_LINKS, Map, map_of, unit_ms

NODE = NodeType(4, (), Link(22.5e9, 5e-6), Link(60e9, 3e-6))
TAG = "{http://www.w3.org/2000/svg}"
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


def test_the_drawing_has_every_node_and_uplink_in_the_colour_of_its_load(shown: Map) -> None:
    root = ElementTree.fromstring(map_svg.document(shown, "a run"))
    most = max(order.loads.largest_s_per_byte for order in shown.orders) * 1e11
    steps = [fill for fill, _ in map_svg.HEAT]
    panels = root.findall(f"{TAG}svg")
    assert len(panels) == len(shown.orders) + 1, "a panel for every order, and the legend"
    for order, panel in zip(shown.orders, panels, strict=False):
        found = {str(box.findtext(f"{TAG}title")): box.get("fill") for box in panel.iter(f"{TAG}rect") if len(box)}
        for name, load in order.link.items():
            begin = f"{name}, place" if load.kind == "host" else f"uplink of {name}:"
            (fill,) = [fill for title, fill in found.items() if title.startswith(begin)]
            step = min(int(len(steps) * unit_ms(load) / most), len(steps) - 1)
            assert fill == steps[step], f"{name} has {unit_ms(load):.2f} of {most:.2f} ms, and is {fill}"
        marked = [box for box in panel.iter(f"{TAG}rect") if box.get("stroke-width") == "2"]
        assert len(marked) == 1, "one link is marked as the hottest"
        words = [str(text.text) for text in panel.iter(f"{TAG}text")]
        assert any(word.startswith(f"hottest: {order.loads.largest_s_per_byte * 1e11:.2f} ms") for word in words)


def test_nothing_is_drawn_outside_its_panel_or_over_another_node(shown: Map) -> None:
    root = ElementTree.fromstring(map_svg.document(shown, "a run"))
    for panel in root.findall(f"{TAG}svg"):
        width, height = (float(panel.get(key, "0")) for key in ("width", "height"))
        cells = set()
        for box in panel.iter(f"{TAG}rect"):
            left, top, wide, tall = (float(box.get(key, "0")) for key in ("x", "y", "width", "height"))
            assert left >= 0 and top >= 0 and left + wide <= width and top + tall <= height
            if (title := str(box.findtext(f"{TAG}title"))) and ", place" in title:
                assert (left, top) not in cells, f"{title} is drawn over another node"
                cells.add((left, top))


def test_the_rings_are_drawn_hop_by_hop(shown: Map) -> None:
    root = ElementTree.fromstring(map_svg.document(shown, "a run"))
    hops = [len(flows) for flows in shown.rings.levels if flows]
    for panel in root.findall(f"{TAG}svg")[: len(shown.orders)]:
        drawn = [str(path.get("d")).count("Q") for path in panel.iter(f"{TAG}path") if path.get("stroke")]
        assert drawn == hops


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
    assert "uplink of pod2" in found.orders[0].hottest
    assert re.search("^ +pod2 .*< hottest", found.text(), re.MULTILINE)


def test_the_alphabetical_order_is_left_out_if_it_is_the_same() -> None:
    shown, _ = mapped(*CASES["one rack"])
    assert [order.name for order in shown.orders] == ["by the network"]
    assert "alphabetical" not in shown.text()
