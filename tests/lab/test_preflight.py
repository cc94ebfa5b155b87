"""A node with a bad link on a real Slurm: named before the first step, and left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.runs.folder.node_findings import Judgement, PreflightRecord
from tests.e2e.lab_places import Slurm
from tests.e2e.places import ledger, until
from tests.lab.cluster import network

from .slurm import SlurmLab

BAD = "node3"
ON = ("--set", "preflight=true")  # the lab's site turns it off
THREE = (*ON, "--set", "nodes=3", "--set", "grid=2x3")
MBIT = 1e6


@pytest.fixture
def place(slurm_lab: SlurmLab) -> Slurm:
    return Slurm(slurm_lab)


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
        resumed = place.torusrun("resume", run.name, "--exclude", BAD, "--wait")
        assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    (started,) = ledger(run, "started")
    assert BAD not in started["hosts"] and not record(run, 2).bad


def test_an_allocation_with_a_host_to_spare_continues_without_the_bad_one(place: Slurm) -> None:
    place.write_script("true")
    held = place.torusrun("hold", "script.yaml", "--time", "5m", "--name", "spare", "--set", "nodes=4",
                          "--set", "grid=2x4", "--wait")  # fmt: skip
    assert held.returncode == 0, held.stderr
    with network.limited(BAD, 50 * MBIT):
        said = place.torusrun("submit", "script.yaml", "--in", "spare", *THREE, "--wait")
        assert said.returncode == 0, said.stdout + said.stderr
        run = Path(place.view(said.stdout.split()[0])["folder"])
        (left_out,), (started,) = ledger(run, "left_out"), ledger(run, "started")
        assert left_out["hosts"] == [BAD] and f"{BAD} (link: " in left_out["reason"]
        assert started["hosts"] == ["node1", "node2", "node4"]
    place.torusrun("cancel", "spare")
    until(lambda: not place.queued(), "the end of the held allocation")


def test_good_nodes_pass_in_seconds(place: Slurm) -> None:
    run = place.submit_script("true", *ON, "--set", "nodes=4", "--set", "grid=2x4")
    assert place.watch(run).returncode == 0
    found = record(run)
    print(f"the preflight of 4 nodes took {found.took_s} s")
    assert found.took_s < 20 and not found.bad, found
    assert len(found.nodes) == 4 and len({frozenset(pair.hosts) for pair in found.pairs}) == 6
    checks = {finding.check.partition(" ")[0]: finding.result for finding in found.nodes[0].findings}
    assert checks["gpus"] is Judgement.SKIPPED, "the lab has no nvidia-smi"
    assert {checks[name] for name in ("memory", "disk", "interface", "clock", "link")} == {Judgement.GOOD}
