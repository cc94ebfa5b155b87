"""Tests for a run on this machine only: orphans, reproduction, a full disk."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

import torusrun
from tests.e2e.places import LONG, TWO_RANKS, Local, assert_same_bits, metrics, until, wait_for_step
from tests.e2e.processes import SUPERVISOR
from torusrun.orchestrator.run.folder.at_work import NodeLoad
from torusrun.orchestrator.run.folder.run_folder import Attempt


def processes_of(run: Path) -> list[int]:
    """Processes that name the run's folder in their arguments."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(run).encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


def test_a_killed_supervisor_is_noticed_and_leaves_no_orphans(local: Local) -> None:
    run = local.submit(*LONG, *TWO_RANKS)
    wait_for_step(run, 5)
    (supervisor,) = (process for process in local.processes(run) if process.module == SUPERVISOR)
    os.kill(supervisor.pid, signal.SIGKILL)
    until(lambda: not processes_of(run), "all processes of the run to end")
    view = local.view(run)
    assert view["state"] == "FAILED" and "was killed by SIGKILL before it recorded an end" in view["reason"]


def test_the_load_of_a_node_and_a_job_that_vanishes_is_lost_and_never_completed(local: Local) -> None:
    run = local.submit(*LONG, *TWO_RANKS)
    wait_for_step(run, 5)
    record = Attempt(run / "attempts/1").node_load(0)
    load = until(lambda: (load := NodeLoad.read(record)) and load.ranks and load.busy and load, "a record with steps")
    total = int(re.findall(r"MemTotal: +(\d+) kB", Path("/proc/meminfo").read_text())[0]) * 1024
    assert load.memory_total_bytes and load.memory_bytes and load.memory_bytes < load.memory_total_bytes <= total
    assert load.cores == len(os.sched_getaffinity(0)) and 0 < load.busy <= 1
    assert {rank.rank for rank in load.ranks} <= {0, 1}, "those that have told by now"
    for rank in load.ranks:
        assert rank.step > 0 and 0 < rank.step_s <= rank.largest_s and rank.waited is not None and 0 <= rank.waited < 1
    os.killpg(int(local.view(run)["job"].partition(".")[0]), signal.SIGKILL)
    until(lambda: not processes_of(run), "all processes of the run to end")
    view = local.view(run)
    assert view["state"] == "LOST" and "left no record of its end" in view["reason"]


OWN_NETWORK = """import torch
import training.sizes

def network(classes, shape, seed):
    pixels = torch.Size(shape).numel()
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(pixels, training.sizes.TIMES * classes))
"""


def test_a_training_does_not_mind_what_the_folders_of_the_user_are_called(local: Local) -> None:
    code = local.folder / "own"
    (code / "training").mkdir(parents=True)
    (code / "training" / "__init__.py").touch()
    (code / "training" / "sizes.py").write_text("TIMES = 1\n")
    (code / "orchestrator.py").write_text("raise SystemExit('this is not torusrun')\n")
    (code / "mine.py").write_text(OWN_NETWORK)
    train = "{model: {name: 'mine:network'}, data: digits, epochs: 1}"
    (code / "run.yaml").write_text(f"name: own\nsite: ../site.yaml\nranks_per_node: 2\ncode: .\ntrain: {train}\n")
    local.succeeds("submit", str(code / "run.yaml"), "--wait", "-q")


def test_a_training_is_reproduced_with_the_same_bits(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    run = local.submit(*TWO_RANKS, "--set", "train.epochs=1")
    assert local.watch(run).returncode == 0
    monkeypatch.setenv("HOME", local.env["HOME"])
    handle = torusrun.open_run(run.name)
    checkpoint = handle.checkpoint()
    assert checkpoint is not None and checkpoint.step == handle.status().total_steps == handle.metrics()[-1]["step"]
    again = local.torusrun("reproduce", run.name, "--wait")
    assert again.returncode == 0 and "bit-identical: equal loss, test_loss, accuracy and top5 at" in again.stdout, again
    shown = json.loads(local.torusrun("show", again.stdout.split()[0], "--json").stdout)
    assert shown["reproduces"] == run.name and shown["compared"]["identical"] and shown["state"] == "COMPLETED"


def test_a_run_keeps_its_spec_to_the_letter_and_its_provenance_has_no_environment(local: Local) -> None:
    run = local.submit_script("true", "--set", "time=9m")
    assert (run / "run.yaml").read_text() == (local.folder / "script.yaml").read_text()
    assert json.loads((run / "plan.json").read_text())["spec"]["time"] == "540.000000s"
    provenance = json.loads((run / "provenance.json").read_text())
    assert provenance["packages"]["torch"] and provenance["torusrun"]
    assert "env" not in " ".join(provenance).lower()


@pytest.mark.needs("mount")
def test_a_full_disk_loses_a_checkpoint_but_not_the_run(local: Local) -> None:
    """The checkpoints' file system has room for one, and not for two; after it has grown, the run continues."""
    short = ("--set", "train.epochs=3", *TWO_RANKS)
    undisturbed = local.submit(*short)
    assert local.watch(undisturbed).returncode == 0
    mounted = local.folder / "mounted"
    site = local.site("late.yaml", setup=json.dumps([f"until test -e {mounted}; do sleep 0.1; done"]))
    run = local.submit(*short, "--set", f"site={site}")
    small = run / "checkpoints"
    try:
        small.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=800k,mode=700", "tmpfs", small], check=True, timeout=10)
    finally:
        mounted.touch()  # else the job would wait for ever
    try:
        assert local.watch(run).returncode == 1
        view = local.view(run)
        assert view["state"] == "FAILED" and "No space left on device" in view["reason"], view
        assert "free space there and resume the run" in view["reason"]
        assert metrics(run, "checkpoint_failed"), "a checkpoint that failed on the way must be told in the metrics"
        assert not list(small.glob(".tmp*")), "a failed checkpoint must leave nothing half-written"
        assert list(small.glob("step-*/manifest.json")), "the older checkpoint must stand"
        subprocess.run(["mount", "-o", "remount,size=50m", small], check=True, timeout=10)
        local.succeeds("resume", run.name, "--wait")
        assert metrics(run, "start")[-1]["resumed_from"], "it must go on from the older checkpoint"
        assert_same_bits(run, undisturbed)
    finally:
        subprocess.run(["umount", "-l", small], check=True, timeout=10)


def test_a_run_continues_in_the_schedulers_order_when_the_topology_cannot_be_read(local: Local) -> None:
    site = local.site("unreadable.yaml", topology="{source: slurm, file: /nowhere/topology.conf}")
    run = local.submit_script("true", "--set", f"site={site}", "--wait")
    assert local.view(run)["state"] == "COMPLETED"
    reason = "keep the scheduler's order: topology.file /nowhere/topology.conf cannot be read"
    assert reason in (run / "attempts/1/job.err").read_text()
