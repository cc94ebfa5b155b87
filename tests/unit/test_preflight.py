"""A preflight of this machine, from the supervisor's side, with a real process for its node."""

from __future__ import annotations

import math
import os
import socket
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torusrun.orchestrator.base.states import Cause, State
from torusrun.orchestrator.job.connection import CALLING, Connection, Frame, Proofs
from torusrun.orchestrator.nodes.connections import KnownNode, Nodes, schedule
from torusrun.orchestrator.nodes.judge import SLOW, Blame, blamed, suspects
from torusrun.orchestrator.nodes.messages import Errand, Hello, hear, say
from torusrun.orchestrator.nodes.preflight import passed
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.how_ended import How, ended
from torusrun.orchestrator.run.folder.node_findings import MeasuredPair, PreflightRecord
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.plan.plan import Plan, plan
from torusrun.orchestrator.schedulers import launchers

RECORDED = Path(__file__).parent / "recorded" / "preflight"
SITE = """scheduler: local
launcher: spawn
node: {{ranks: 1, gpus: 4, interface: lo}}
python: {python}
runs: {home}/runs
"""
HERE = os.uname().nodename


@pytest.fixture
def planned(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A run on this machine, whose nvidia-smi shows one of four GPUs."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\ntest $1 = -q && exec cat {RECORDED}/a100.xml\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    (home / "site.yaml").write_text(SITE.format(python=sys.executable, home=home))
    (home / "run.yaml").write_text("name: one\nsite: ./site.yaml\ncode: none\npreflight: true\ncommand: ['true']\n")
    return plan(home / "run.yaml")


def attempt_of(planned: Plan) -> Attempt:
    attempt = RunFolder(planned.folder).attempt(1)
    attempt.folder.mkdir(parents=True, exist_ok=True)
    return attempt


def after(planned: Plan, hosts: list[str], asked: End | None = None) -> list[str] | End:
    run = RunFolder(planned.folder)
    return passed(planned, run, attempt_of(planned), hosts, launchers.named("spawn"), lambda: asked)


def test_a_gpu_that_is_missing_ends_the_attempt_before_its_ranks_start(planned: Plan) -> None:
    assert planned.has_preflight
    end = after(planned, [HERE])
    assert isinstance(end, End) and (end.state, end.cause, end.hosts) == (State.NODE_FAIL, Cause.BAD_HOST, (HERE,))
    assert end.reason == f"the preflight blames {HERE} (gpus: 1, wanted 4)"
    record = PreflightRecord.read(attempt_of(planned).preflight)
    assert record and record.bad == {HERE: ("gpus: 1, wanted 4",)}
    assert not attempt_of(planned).preflight_order.exists(), "it has a secret"


def test_a_preflight_that_is_not_possible_blames_nobody(planned: Plan, capfd: pytest.CaptureFixture[str]) -> None:
    home = planned.folder.parents[1]
    (home / "python").write_text("#!/bin/sh\necho no module >&2\nexit 3\n")
    (home / "python").chmod(0o755)
    (home / "site.yaml").write_text(SITE.format(python=home / "python", home=home))
    without = plan(home / "run.yaml")
    assert after(without, [HERE, "other"]) == [HERE, "other"]
    assert "no preflight, so no node was checked: 0 of 2 nodes reported" in capfd.readouterr().err
    assert "no module" in attempt_of(without).preflight_output.read_text()
    assert not attempt_of(without).preflight.exists() and not ledger.events(RunFolder(without.folder).ledger)


def test_a_record_that_cannot_be_written_spares_no_bad_host(planned: Plan, capfd: pytest.CaptureFixture[str]) -> None:
    attempt_of(planned).preflight.mkdir()
    end = after(planned, [HERE])
    assert isinstance(end, End) and end.cause is Cause.BAD_HOST
    assert f"{attempt_of(planned).preflight}: cannot be written" in capfd.readouterr().err


def test_a_node_that_reports_when_the_preflight_is_over_disturbs_nothing() -> None:
    key = b"k" * 32
    nodes = Nodes(["early", "late"], key, "lo")

    class Early(Connection):
        """Another node reports while this one is asked to end."""

        def send(self, kind: Frame, content: bytes = b"") -> None:
            nodes.known["meanwhile"] = KnownNode(self)
            super().send(kind, content)

    here, there = socket.socketpair()
    nodes.known["early"] = KnownNode(Early(here, sends=key, receives=key))
    with Proofs(key, CALLING) as proofs, there:
        proofs.call(nodes.addresses[0], nodes.ports[0])
        while not (late := proofs.step(1.0)):
            assert proofs.waiting
        nodes.close()
        say(late, Hello("late"))
        with pytest.raises(OSError, match="closed"):
            hear(late, Errand)


def test_a_request_to_stop_ends_a_preflight(planned: Plan) -> None:
    stop = ended(How.CANCELLED)
    assert after(planned, [HERE, "silent", "silent too"], stop) is stop
    assert not attempt_of(planned).preflight_order.exists()


# Which pairs of nodes are measured, and who is blamed: properties over many numbers of nodes and faults.


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
