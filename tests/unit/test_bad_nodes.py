"""The memory of bad nodes: which hosts are bad when, which ends blame whom, and what a request leaves out."""

import multiprocessing
from dataclasses import asdict, replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.verbs import Patch
from torusrun.orchestrator.base.states import Cause, State
from torusrun.orchestrator.base.typed import record_of
from torusrun.orchestrator.job.hangs import hang
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.place.placement.mapping import place
from torusrun.orchestrator.run.bad_nodes import bad_node, memory
from torusrun.orchestrator.run.bad_nodes.bad_node import (
    Blamed,
    BlamedNode,
    Event,
    Forgiven,
    as_line,
    from_line,
    last_choice,
    spared,
)
from torusrun.orchestrator.run.bad_nodes.left_out import LONGEST, LeftOutNodes, choose
from torusrun.orchestrator.run.bad_nodes.noted import suspects
from torusrun.orchestrator.run.folder.how_ended import How, ended
from torusrun.orchestrator.run.folder.records import End

HOUR_S, DAY_S = 3600.0, 86400.0
NOW_S = 1_800_000_000.0
HOSTS = ("n1", "n2", "n3", "n4")


def lost(host: str, run: str, hours_ago: float, *, site: str = "s", after: int = 2, attempt: int = 1) -> Blamed:
    at_s = NOW_S - hours_ago * HOUR_S
    return Blamed(site, host, "lost", f"lost {host}", run, attempt, after, DAY_S, time_s=at_s)


def bad(events: list[Event], hours_later: float = 0.0) -> dict[str, int]:
    """The bad hosts and how many ends blame each."""
    return {node.host: node.count for node in bad_node.bad(events, NOW_S + hours_later * HOUR_S, "s")}


def test_a_host_is_bad_from_its_second_end_on_and_forgiven_a_day_later() -> None:
    events: list[Event] = [lost("n1", "a", 20), lost("n2", "a", 20), lost("n1", "b", 5)]
    assert bad(events[:2]) == {} and bad(events) == {"n1": 2}
    assert bad(events, 18.9) == {"n1": 2}, "a day counts from the newest end"
    assert bad(events, 19.1) == {}
    again: list[Event] = [*events, lost("n1", "c", -20)]
    assert bad(again, 20.5) == {}, "after it is forgiven it takes two ends again"


def test_only_ends_of_one_host_and_site_that_are_close_add_up_and_a_certain_blame_is_enough() -> None:
    assert bad([lost("n1", "a", 25), lost("n1", "b", 0.5)]) == {}
    assert bad([lost("n1", "a", 3), lost("n1", "a", 2)]) == {}, "an attempt counts once, whoever records its end"
    assert bad([lost("n1", "a", 3), lost("n1", "a", 2, attempt=2)]) == {"n1": 2}
    assert bad([lost("n1", "a", 3), lost("n1", "b", 2, site="other")]) == {}
    certain = lost("n1", "a", 3, after=1)
    assert bad([certain]) == bad([lost("n1", "a", 4), certain]) == {"n1": 1}
    assert bad([certain, Forgiven("s", "n1", time_s=NOW_S - HOUR_S), lost("n1", "a", 0.5, after=1)]) == {}
    assert bad([certain, Forgiven("s", "n1", time_s=NOW_S - HOUR_S), lost("n1", "b", 0.5, after=1)]) == {"n1": 1}


def test_names_with_and_without_a_domain_mean_one_host_and_an_event_to_come_is_not_believed() -> None:
    assert bad([lost("n1", "a", 3), lost("n1.x.org", "b", 2)]) == {"n1.x.org": 2}
    assert bad([lost("n1.x.org", "a", 3), lost("n1.y.org", "b", 2)]) == {}
    assert bad([lost("n1", "a", 3, after=1), Forgiven("s", "n1.x.org", time_s=NOW_S)]) == {}
    assert bad([lost("n1", "a", -0.5, after=1)]) == {"n1": 1}, "the clocks of nodes differ a little"
    assert bad([lost("n1", "a", -10_000, after=1)]) == {}


BLAMES = st.builds(
    lost,
    st.sampled_from(["n1", "n1.x", "n2"]),
    st.sampled_from("abc"),
    st.integers(0, 60 * 60).map(lambda minutes: minutes / 60),
    after=st.sampled_from([1, 2, 3]),
    attempt=st.integers(1, 2),
)
FORGIVEN = st.builds(
    lambda host, minutes: Forgiven("s", host, time_s=NOW_S - minutes * 60.0 - 1),
    st.sampled_from(["n1", "n2"]),
    st.integers(0, 60 * 60),
)
EVENTS = st.lists(BLAMES | FORGIVEN, max_size=12, unique_by=lambda event: event.time_s)


@given(EVENTS, st.randoms(use_true_random=False), st.integers(0, 100))
@settings(max_examples=300, deadline=None)
def test_the_order_of_lines_makes_no_difference_and_what_is_left_of_a_long_file_says_the_same(
    events: list[Event], chance: Random, hours: int
) -> None:
    mixed = chance.sample(events, len(events))
    now_s = NOW_S + hours * HOUR_S
    found = bad_node.blamed(events, now_s)
    assert bad_node.blamed(mixed, now_s) == found
    assert bad_node.blamed(bad_node.living(events, NOW_S), now_s) == found
    assert [from_line(as_line(event).encode()) for event in events] == events


@given(EVENTS)
@settings(max_examples=200, deadline=None)
def test_forgiven_and_expired_hosts_are_not_bad(events: list[Event]) -> None:
    assert not bad_node.blamed(events, NOW_S + 2 * DAY_S + 1), "nobody has to act"
    forgiven: list[Event] = [Forgiven("s", host, time_s=NOW_S + 1) for host in ("n1", "n2", "n1.x")]
    assert not bad_node.blamed([*events, *forgiven], NOW_S + 2)
    for node in bad_node.blamed(events, NOW_S):
        assert node.bad == (node.until_s is not None and node.until_s > NOW_S)
        assert node.count >= 1 and (node.bad or node.more >= 1)


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"[]", b'{"event": "blamed"}', b'{"event": "healed", "site": "s", "host": "n1", "t": 1}',
     b'{"event": "forgiven", "site": "s", "host": "-n1", "t": 1}', b'{"event": "forgiven", "site": "s", "host": "n1"}',
     b'{"event": "blamed", "site": "s", "host": "n1;rm", "reason": "x", "t": 1}',
     b'{"event": "blamed", "site": "s", "host": "n1", "reason": "x", "for_s": 1e12, "t": 1}'],
)  # fmt: skip
def test_a_damaged_line_is_left_out(line: bytes) -> None:
    assert from_line(line) is None


def test_the_memory_never_grows_without_limit(home: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(memory, "LARGEST_BYTES", 20_000)
    for number in range(120):
        memory.blame("s", [f"n{number}"], "lost", "x" * 1000, run="r", attempt=number + 1, certain=False)
        assert memory.place().stat().st_size < 20_000 + 1000
    assert memory.place().stat().st_mode & 0o077 == 0, "it is its user's alone"
    assert "n119" in {node.host for node in memory.blamed()}
    memory.place().write_bytes(b"\x00\xff\n" + memory.place().read_bytes() + b'{"event": "bl')
    memory.blame("s", ["n119"], "lost", "", run="q", attempt=1, certain=False)
    assert [node.host for node in memory.bad("./s.yaml")] == ["n119"], "a torn line takes no other with it"


def test_jobs_that_end_at_once_lose_no_blame_while_the_file_is_rewritten(home: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(memory, "LARGEST_BYTES", 30_000)
    memory.blame("s", ["n0"], "lost", "", run="old", attempt=1)
    old = [as_line(lost(f"n{number}", "old", 10**5)) for number in range(180)]
    memory.place().write_text("".join(f"{line}\n" for line in old))

    def blame(run: str) -> None:
        for number in range(15):
            memory.blame("s", [f"n{number}"], "lost", "", run=run, attempt=1, certain=False)

    jobs = [multiprocessing.get_context("fork").Process(target=blame, args=(f"r{number}",)) for number in range(4)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(60)
    assert [job.exitcode for job in jobs] == [0] * 4
    assert memory.place().stat().st_size < 20_000, "the old events are gone"
    assert {(node.host, node.count) for node in memory.blamed()} == {(f"n{number}", 4) for number in range(15)}


PLACEMENT = place(Grid((8,)), HOSTS, 2)
PAUSE = hang.Pause(600.0, 600.0, 5)


@pytest.mark.parametrize(
    ("end", "blamed"),
    [
        (ended(How.HOST_LOST, PLACEMENT, hosts=["n3"]), ["n3"]),
        (ended(How.HOST_SILENT, PLACEMENT, hosts=["n2"], silent_s=60.0), ["n2"]),
        (ended(How.HOST_NO_RECORD, PLACEMENT, hosts=["n2", "n3"]), []),  # half of them: what do they share?
        (ended(How.DAEMON_GONE, hosts=["n1"], host="n1", before="x"), ["n1"]),
        (End(State.NODE_FAIL, "Slurm lost one of them", cause=Cause.HOST_LOST, hosts=HOSTS), []),
        (hang.hung(PLACEMENT, {n: hang.Where(None if n in (2, 3) else "S") for n in range(8)}, PAUSE), ["n2"]),
        (hang.hung(PLACEMENT, {n: hang.Where(None if n == 2 else "S") for n in range(8)}, PAUSE), ["n2"]),
        (hang.hung(PLACEMENT, {n: hang.Where("D" if n == 7 else "S") for n in range(8)}, PAUSE), ["n4"]),
        (hang.hung(PLACEMENT, {n: hang.Where("T" if n == 7 else "S") for n in range(8)}, PAUSE), []),
        (hang.hung(PLACEMENT, {n: hang.Where("D" if n in (1, 7) else "S") for n in range(8)}, PAUSE), []),
        (hang.hung(PLACEMENT, {n: hang.Where("S", ("mine.py:1 f",) if n == 0 else
                                             ("training/collectives/x.py:1 g",)) for n in range(8)}, PAUSE), []),
        (hang.hung(PLACEMENT, {n: hang.Where("S") for n in range(8)}, PAUSE), []),
        (hang.hung(PLACEMENT, {}, PAUSE), []),
        *((replace(ended(How.HOST_LOST, PLACEMENT, hosts=["n3"]), cause=cause), [])
          for cause in Cause if cause not in (Cause.HOST_LOST, Cause.HANG)),
    ],
)  # fmt: skip
def test_an_end_blames_a_host_by_evidence_only(end: End, blamed: list[str]) -> None:
    assert list(suspects(end, HOSTS)) == blamed


def node(host: str, count: int = 2, certain: bool = False, last_s: float = NOW_S) -> BlamedNode:
    return BlamedNode("s", host, "lost", "", count, NOW_S, last_s, NOW_S + DAY_S, 0, certain, ())


BAD = [node("n3", 1, True), node("n2", 3), node("n1.x")]


@pytest.mark.parametrize(
    ("nodes", "more", "out", "kept"),
    [
        (2, {}, ["n3", "n2", "n1.x"], []),
        (2, {"cluster": ["n1", "n2", "n3", "n4", "n5"]}, ["n3", "n2", "n1"], []),
        (3, {"cluster": ["n1", "n2", "n3", "n4", "n5"]}, ["n3", "n2"], ["n1"]),
        (9, {"cluster": ["n1", "n2", "n3", "n4", "n5"]}, [], ["n3", "n2", "n1"]),
        (2, {"cluster": ["n1", "n2", "n4", "n5"]}, ["n2", "n1"], []),
        (2, {"cluster": ["n1", "n2", "n3", "n4"], "excluded": ["n3.x"]}, ["n2"], ["n1"]),
        (2, {"cannot": "it knows no such request"}, [], ["n3", "n2", "n1.x"]),
    ],
)
def test_a_request_leaves_out_the_most_certain_first_and_can_always_be_satisfied(
    nodes: int, more: dict[str, list[str]], out: list[str], kept: list[str]
) -> None:
    found = choose(BAD, nodes, **more)  # type: ignore[arg-type]
    assert (list(found.hosts), list(found.keeps)) == (out, kept)
    assert bool(found.why_kept) is bool(kept) and len(found.lines) == bool(out) + bool(kept)
    assert record_of(LeftOutNodes, asdict(found), str) == found


def test_a_request_names_no_more_hosts_than_a_directive_can_have() -> None:
    many = [node(f"node{number:04}.cluster.example.org") for number in range(200)]
    found = choose(many, 2)
    assert 1000 < len(",".join(found.hosts)) <= LONGEST and len(found.hosts) + len(found.keeps) == 200
    assert len("".join(found.lines)) < 600, "the line stays short"


def test_bad_hosts_are_the_last_choice_in_the_order_of_the_others() -> None:
    assert last_choice(["n3.x", "n5", "n1", "n2", "n4"], BAD) == ["n5", "n4", "n1", "n2", "n3.x"]
    assert last_choice(["n5", "n4"], BAD) == ["n5", "n4"] and last_choice(["n2"], []) == ["n2"]


@pytest.mark.parametrize(
    ("nodes", "left"),
    [(5, ["n3.x", "n5", "n1", "n2", "n4"]), (4, ["n5", "n1", "n2", "n4"]), (3, ["n5", "n1", "n4"]), (1, ["n5", "n4"])],
)
def test_an_attempt_in_a_larger_allocation_spares_bad_hosts_and_leaves_the_order_of_the_others(
    nodes: int, left: list[str]
) -> None:
    assert spared(["n3.x", "n5", "n1", "n2", "n4"], BAD, nodes) == left
