"""A node with a bad link on a real Slurm: named before the first step, and left out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.lab_places import Slurm
from tests.e2e.places import ledger
from tests.lab.cluster import network
from torusrun.orchestrator.nodes.findings import Judgement, PreflightRecord

from .slurm import SlurmLab

BAD = "node3"
ON = ("--set", "preflight=true", "--set", "site=remembers.yaml")  # the lab's site turns it off, and forgets
THREE = (*ON, "--set", "nodes=3", "--set", "grid=2x3")
MBIT = 1e6


@pytest.fixture
def place(slurm_lab: SlurmLab) -> Iterator[Slurm]:
    place = Slurm(slurm_lab)
    place.site("remembers.yaml", forget_bad_nodes="1h")
    yield place
    place.torusrun("nodes", "forgive", "--all")


def record(run: Path, attempt: int = 1) -> PreflightRecord:
    found = PreflightRecord.read(run / f"attempts/{attempt}/preflight.json")
    assert found
    return found


def test_a_limited_link_is_named_before_the_first_step_and_the_next_attempt_avoids_it(place: Slurm) -> None:
    with network.limited(BAD, 50 * MBIT):
        run = place.submit_script("true", *THREE)
        assert place.watch(run).returncode == 1
        found = record(run)
        assert [*found.bad] == [BAD] and not found.links, found
        view, said = place.view(run), json.loads(place.torusrun("explain", run.name, "--json").stdout)
        assert (view["state"], said["cause"], said["hosts"]) == ("NODE_FAIL", "bad_host", [BAD])
        assert f"the preflight blames {BAD} (link: " in view["reason"] and "to 2 nodes, wanted" in view["reason"]
        assert any(f"--exclude {BAD}" in line for line in said["to_do"])
        assert not (run / "attempts/1/ranks").exists() and not ledger(run, "started"), "no rank may have started"
        assert not (run / "attempts/1/preflight.order.json").exists(), "it has a secret"
        assert BAD in place.torusrun("nodes").stdout
        place.succeeds("resume", run.name, "--wait")
    (started,) = ledger(run, "started")
    assert BAD not in started["hosts"] and not record(run, 2).bad


def test_a_job_with_a_spare_node_continues_without_the_bad_one(place: Slurm) -> None:
    with network.limited(BAD, 50 * MBIT):
        run = place.submit_script("true", *THREE, "--set", "keep_going.spares=1")
        assert place.watch(run).returncode == 0, place.view(run)
    (left_out,), (started,) = ledger(run, "left_out"), ledger(run, "started")
    assert left_out["hosts"] == [BAD] and f"{BAD} (link: " in left_out["reason"]
    assert started["hosts"] == ["node1", "node2", "node4"] and BAD in place.torusrun("nodes").stdout


def test_good_nodes_pass_after_each_pair_of_them_is_measured(place: Slurm) -> None:
    run = place.submit_script("true", *ON, "--set", "nodes=4", "--set", "grid=2x4")
    assert place.watch(run).returncode == 0
    found = record(run)
    assert not found.bad and len(found.nodes) == 4, found
    assert len({frozenset(pair.hosts) for pair in found.pairs}) == 6
    checks = {finding.check.partition(" ")[0]: finding.result for finding in found.nodes[0].findings}
    assert checks["gpus"] is Judgement.SKIPPED, "the lab has no nvidia-smi"
    assert {checks[name] for name in ("memory", "disk", "interface", "link")} == {Judgement.GOOD}


def test_later_jobs_of_a_run_that_keeps_going_leave_out_the_host_that_was_found_bad(place: Slurm) -> None:
    with network.limited(BAD, 50 * MBIT):
        run = place.submit_script("true", *THREE, "--set", "keep_going.attempts=3")
        said = place.watch(run)
        jobs = "".join((run / f"attempts/1/jobs.{kind}").read_text() for kind in ("out", "err"))
        assert said.returncode == 0, f"{place.view(run)}\n{jobs}"
    (changed,), (started,) = ledger(run, "request_changed"), ledger(run, "started")
    assert changed["left_out"] == {BAD: "found bad"} and BAD not in started["hosts"], jobs
    assert [event["cause"] for event in ledger(run, "ended")] == ["bad_host", "done"]
    assert not ledger(run, "given_bad_hosts"), "Slurm gave the next job another host"
