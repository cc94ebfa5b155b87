"""A preflight of this machine, from the supervisor's side, with a real process for its node."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from torusrun.orchestrator.base.states import Cause, State
from torusrun.orchestrator.job.connection import CALLING, Connection, Frame, Proofs
from torusrun.orchestrator.nodes.connections import KnownNode, Nodes
from torusrun.orchestrator.nodes.findings import PreflightRecord
from torusrun.orchestrator.nodes.messages import Errand, Hello, hear, say
from torusrun.orchestrator.nodes.preflight import passed
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.how_ended import How, ended
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
