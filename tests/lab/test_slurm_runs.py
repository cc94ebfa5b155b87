"""torusrun on a real Slurm: tests that need a real one."""

import json
import math
import random
import shutil
import time
from pathlib import Path

import pytest

from tests.e2e.lab_places import Slurm
from tests.e2e.places import LONG, WAITS, ledger, until, wait_for_step
from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.place.hosts.hostlist import expand, fold
from torusrun.orchestrator.schedulers.client import Client
from torusrun.orchestrator.schedulers.slurm.scheduler import Slurm as Backend

from .slurm import SlurmLab


@pytest.fixture
def place(slurm_lab: SlurmLab) -> Slurm:
    return Slurm(slurm_lab)


@pytest.mark.parametrize("launcher", ["srun", "mpirun", "mpiexec.hydra"])
def test_ranks_stand_in_the_order_of_the_network(place: Slurm, launcher: str) -> None:
    """Two racks whose nodes alternate by name: Slurm's own order would cross the uplinks at every hop."""
    racks = '{source: switches, switches: {ra: "node[1,3]", rb: "node[2,4]"}, uplink: 1/2}'
    site = place.site("racks.yaml", topology=racks, launcher=launcher)
    run = place.submit_script("true", "--set", f"site={site}", "--set", "nodes=4", "--set", "grid=2x4")
    said = place.watch(run)
    assert said.returncode == 0, said.stdout + place.torusrun("logs", run.name, "--all").stdout
    (started,) = ledger(run, "started")
    assert started["hosts"] == ["node1", "node3", "node2", "node4"]
    for rank in range(8):
        start = json.loads((run / "attempts" / "1" / "ranks" / f"{rank:04d}.start.json").read_text())
        assert start["host"] == started["hosts"][rank // 2], "every rank compared its place with the placement"


@pytest.mark.parametrize("launcher", ["srun", "mpirun", "mpiexec.hydra"])
def test_nodes_may_have_other_names_than_their_hosts(place: Slurm, slurm_lab: SlurmLab, launcher: str) -> None:
    site = place.site("clouds.yaml", launcher=launcher, preflight="{enabled: true}")
    for number, node in enumerate(slurm_lab.nodes, 1):
        slurm_lab.exec_on(node, ["hostname", f"IP-10-0-0-{number}"])
    try:
        run = place.submit_script("hostname", "--set", f"site={site}", "--set", "nodes=4", "--set", "grid=2x4")
        said = place.watch(run)
    finally:
        for node in slurm_lab.nodes:
            slurm_lab.exec_on(node, ["hostname", node])
    attempt = run / "attempts" / "1"
    assert said.returncode == 0, said.stdout + place.torusrun("logs", run.name, "--all").stdout
    assert "IP-10-0-0-" in (attempt / "logs" / "rank-0007.log").read_text()
    assert (attempt / "pulse").read_text().strip() in slurm_lab.nodes
    checked = json.loads((attempt / "preflight.json").read_text())["nodes"]
    assert {node["host"] for node in checked} == {*slurm_lab.nodes}


def test_the_job_chooses_the_grid_for_its_hosts_and_a_resumed_run_keeps_it(place: Slurm) -> None:
    site = place.site("racks.yaml", topology='{source: switches, switches: {ra: "node[1,3]", rb: "node[2,4]"}}')
    told = "command: [sh, -c, 'echo grid $TORUSRUN_GRID; test $TORUSRUN_ATTEMPT = 2']"
    place.put("auto.yaml", f"name: auto\nsite: {site}\nnodes: 4\ncode: none\n{told}\n")
    expected = json.loads(place.torusrun("plan", "auto.yaml", "--json").stdout)
    assert "racks of the site" in expected["grid_reason"]
    said = place.torusrun("submit", "auto.yaml", "--wait")
    assert said.returncode == 1, said.stdout + said.stderr
    run = Path(place.view(said.stdout.split()[0])["folder"])
    place.succeeds("resume", run.name, "--wait")
    first, second = ledger(run, "started")
    assert first["grid"] == second["grid"] == place.view(run)["grid"] == expected["grid"]
    assert "on these 4 hosts" in first["grid_reason"] and "auto: as in attempt 1" in second["grid_reason"]
    logs = (run / "attempts/2/logs/rank-0007.log").read_text()
    assert logs == f"grid {'x'.join(map(str, second['grid']))}\n"


def test_slurm_gives_the_hosts_of_each_switch(place: Slurm) -> None:
    """The lab's topology.conf has two racks; the allocated hosts are in both."""
    place.put("hosts", "node1\nnode3\nnode2\nnode4\n")
    place.put(
        "tree.yaml",
        f"name: tree\nsite: {place.site('tree-site.yaml', topology='{source: slurm}')}\nnodes: 4\ntrain: {{}}\n",
    )
    said = place.torusrun(
        "plan", "tree.yaml", "--set", "grid=2x4", "--set", "train.batch=64", "--hosts", "hosts", "--json"
    )
    assert said.returncode == 0, said.stderr
    placed = json.loads(said.stdout)["placement"]
    assert {"racka", "rackb"} <= {link["name"] for link in placed["links"]}
    racks = [host in ("node1", "node2") for host in placed["hosts"]]
    assert placed["optimal"] and sum(a != b for a, b in zip(racks, [*racks[1:], racks[0]], strict=True)) == 2
    assert placed["orders"][1]["all_reduce_s"] >= placed["orders"][0]["all_reduce_s"]


def test_a_launcher_that_does_not_keep_the_order_is_caught_before_training(place: Slurm) -> None:
    """Open MPI with its rank file disabled assigns ranks to nodes in turn."""
    wrong = '["--mca", "rmaps", "^rank_file", "--map-by", "node"]'
    run = place.submit("--set", f"site={place.site('wrong.yaml', launcher='mpirun', launcher_args=wrong)}")
    assert place.watch(run).returncode == 1
    view = place.view(run)
    assert view["state"] == "FAILED"
    assert "but the placement puts it on" in view["reason"] and "did not keep the order" in view["reason"], view
    assert "node1" in view["reason"] and "node2" in view["reason"], "the message must name both places"
    assert not (run / "metrics.jsonl").exists(), "no rank may have trained"


def test_a_dry_run_asks_slurm_whether_the_job_could_run(place: Slurm) -> None:
    place.write_spec()
    queued = place.queued()
    said = place.succeeds("submit", "run.yaml", "--dry-run", "--ask")
    assert "\nAnswer of the scheduler\n  sbatch: Job " in said.stdout and "to start at" in said.stdout, said.stdout
    refused = place.torusrun("submit", "run.yaml", "--set", "queue=nowhere", "--dry-run", "--ask")
    assert refused.returncode == 3 and not refused.stdout, refused.stdout
    assert "asking whether the job could run: sbatch ended with exit code 1" in refused.stderr, refused.stderr
    assert "invalid partition" in refused.stderr and place.queued() == queued, "nothing may be submitted"


def test_without_accounting_the_states_still_come_out_right(place: Slurm) -> None:
    place.lab.stop_slurmdbd()
    try:
        held = place.submit("--set", f"site={place.site('held.yaml', request='{memory: 3GiB, options: [--hold]}')}")
        assert place.view(held)["state"] == "PENDING" and "JobHeldUser" in place.view(held)["reason"]
        assert place.torusrun("cancel", held.name).returncode == 0
        until(lambda: place.view(held)["state"] == "CANCELLED", "the held run to be cancelled")
        early = place.submit("--set", f"site={place.site('nopython.yaml', python='/no/such/python')}")
        until(lambda: place.view(early)["state"] == "FAILED", "the run without Python to fail")
        assert "exit code 127" in place.view(early)["reason"]
    finally:
        place.lab.start_slurmdbd()


def test_an_administrators_scancel_is_reported_and_leaves_a_checkpoint(place: Slurm) -> None:
    run = place.submit(*LONG)
    wait_for_step(run, 40)
    place.lab.admin(["scancel", place.view(run)["job"]])
    assert place.watch(run).returncode == 1
    view = place.view(run)
    assert view["state"] == "CANCELLED" and "outside" in view["reason"], view
    assert place.torusrun("resume", run.name).returncode == 0
    place.torusrun("cancel", run.name)
    place.watch(run)
    assert ledger(run, "submitting")[-1]["resumes"].startswith("step-")


def test_a_thousand_jobs_cost_one_command_to_the_queue_and_one_to_accounting(
    slurm_lab: SlurmLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", slurm_lab.env["SLURM_CONF"])
    process.CALLS.clear()
    found = Client(Backend(), 30).poll([str(n) for n in range(900000, 901000)])
    assert dict(process.CALLS) == {"squeue": 1, "sacct": 1}
    assert {status.state for status in found.values()} == {State.LOST}


def test_terminals_that_watch_share_one_question_per_interval(place: Slurm) -> None:
    site = place.site("slow.yaml", poll_interval="3s")
    run = place.submit_script(WAITS, "--set", f"site={site}")
    began_s = time.monotonic()
    noting = f'#!/bin/sh\necho asked >> {place.folder}/asked\nexec {shutil.which("squeue")} "$@"\n'
    place.put("noting", noting)
    assert place.run(["sh", "-c", "mkdir noted && mv noting noted/squeue && chmod +x noted/squeue"]).returncode == 0
    watch = f'PATH="$PWD/noted:$PATH" exec {place.lab.python} -m torusrun watch {run.name}'
    terminals = [place.start(["sh", "-c", watch]) for _ in range(6)]
    asked = place.folder / "asked"
    until(lambda: asked.exists() and len(asked.read_text().splitlines()) > 2, "the terminals to ask three times")
    place.release(run)
    assert [terminal.wait(timeout=120) for terminal in terminals] == [0] * 6
    times, intervals = len(asked.read_text().splitlines()), math.ceil((time.monotonic() - began_s) / 3)
    assert times <= intervals, f"squeue ran {times} times in {intervals} intervals"


def test_host_lists_expand_as_slurm_expands_them(slurm_lab: SlurmLab) -> None:
    draw = random.Random(20261121)

    def part() -> str:
        low, width = draw.randrange(0, 120), draw.choice((1, 3))  # a range has one width: of others programs differ
        return f"{low:0{width}d}" + (f"-{low + draw.randrange(0, 15):0{width}d}" if draw.random() < 0.5 else "")

    def word() -> str:
        parts = ",".join(part() for _ in range(draw.randrange(1, 4)))
        return draw.choice("abc") + draw.choice(("", "-", "x9-")) + f"[{parts}]"

    for _ in range(60):
        text = ",".join([*(word() for _ in range(draw.randrange(1, 4))), "login1"])
        theirs = slurm_lab.admin(["scontrol", "show", "hostnames", text]).stdout.split()
        assert expand(text) == theirs, text
        draw.shuffle(theirs)
        assert slurm_lab.admin(["scontrol", "show", "hostnames", fold(theirs)]).stdout.split() == theirs
