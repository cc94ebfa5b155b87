"""Tests for a run on this machine only: the Python API, orphans, collecting, a full disk."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.e2e.places import LONG, ROOT, TWO_RANKS, Local, assert_same_bits, metrics, until, wait_for_step
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


def test_the_python_api(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    import torusrun

    monkeypatch.setenv("HOME", str(local.folder))
    (local.folder / "run.yaml").write_text((ROOT / "examples" / "digits.yaml").read_text())
    site = str(local.folder / "site.yaml")
    run = torusrun.submit(local.folder / "run.yaml", site=site, settings=["train.epochs=2", *TWO_RANKS[1::2]])
    view = run.wait(timeout_s=120)
    assert view.state.value == "COMPLETED"
    assert run.metrics()[-1]["event"] == "done"
    assert torusrun.open_run(run.id).status() == view
    checkpoint = run.checkpoint()
    assert checkpoint is not None and checkpoint.step == view.total_steps


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
    load = until(lambda: (load := NodeLoad.read(record)) and load.ranks and load, "a record of the node, with steps")
    total = int(re.findall(r"MemTotal: +(\d+) kB", Path("/proc/meminfo").read_text())[0]) * 1024
    assert load.memory_total_bytes and load.memory_bytes and load.memory_bytes < load.memory_total_bytes <= total
    assert load.cores == len(os.sched_getaffinity(0)) and load.busy and 0 < load.busy <= 1
    assert {rank.rank for rank in load.ranks} <= {0, 1}, "those that have told by now"
    for rank in load.ranks:
        assert rank.step > 0 and 0 < rank.step_s <= rank.largest_s and rank.waited is not None and 0 <= rank.waited < 1
    os.killpg(int(local.view(run)["job"].partition(".")[0]), signal.SIGKILL)
    until(lambda: not processes_of(run), "all processes of the run to end")
    view = local.view(run)
    assert view["state"] == "LOST" and "left no record of its end" in view["reason"]


def test_logs_are_distinguished_and_collected(local: Local) -> None:
    run = local.submit("--set", "train.epochs=1", "--set", "env.TORCH_CPP_LOG_LEVEL=INFO")
    assert local.watch(run).returncode == 0
    merged = local.torusrun("logs", run.name, "--all").stdout.splitlines()
    assert {"job", "0", "1", "2", "3"} <= {line.split(" | ")[0] for line in merged}
    alone = local.torusrun("logs", run.name, "--rank", "2").stdout.splitlines()
    assert alone == [line.removeprefix("2 | ") for line in merged if line.startswith("2 | ")]
    assert local.torusrun("logs", run.name, "--rank", "9").returncode == 2
    assert local.torusrun("logs", run.name, "--attempt", "5").returncode == 2
    into = local.folder / "kept" / "here"
    assert local.torusrun("collect", run.name, str(into)).returncode == 0
    kept = {str(p.relative_to(into)) for p in into.rglob("*") if p.is_file()}
    assert {"run.yaml", "plan.json", "provenance.json", "ledger.jsonl", "metrics.jsonl", "attempts/1/job.sh"} <= kept
    assert len([name for name in kept if name.endswith("state.pt")]) == 1
    again = local.torusrun("collect", run.name, str(into))
    assert again.returncode == 2 and "exists already" in again.stderr


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


def test_a_training_is_reproduced_with_the_same_bits(local: Local) -> None:
    run = local.submit(*TWO_RANKS, "--set", "train.epochs=1")
    assert local.watch(run).returncode == 0
    again = local.torusrun("reproduce", run.name, "--wait")
    assert again.returncode == 0 and "bit-identical: equal loss, test_loss, accuracy and top5 at" in again.stdout, again
    shown = json.loads(local.torusrun("show", again.stdout.split()[0], "--json").stdout)
    assert shown["reproduces"] == run.name and shown["compared"]["identical"] and shown["state"] == "COMPLETED"


def test_a_submission_without_an_answer_is_unknown_and_can_be_resumed_by_force(local: Local) -> None:
    """The scheduler's command does not answer in time: whether there is a job is unknown."""
    hasty = (local.folder / "site.yaml").read_text() + "command_timeout: 0.001s\n"
    (local.folder / "hasty.yaml").write_text(hasty)
    local.write_script("true")
    said = local.torusrun("submit", "script.yaml", "--set", "site=hasty.yaml")
    assert said.returncode == 3 and "did not answer within 0.001 s" in said.stderr
    view = local.view("last")
    assert view["state"] == "UNKNOWN" and f"look for a job named '{view['run']}.1'" in view["reason"]
    refused = local.torusrun("resume", view["run"])
    assert refused.returncode == 2 and "--force" in refused.stderr
    plan = Path(view["folder"]) / "plan.json"
    plan.write_text(plan.read_text().replace('"0.001000s"', '"30s"'))
    local.succeeds("resume", view["run"], "--force", "--wait")


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
    site = local.folder / "site.yaml"
    site.write_text(site.read_text() + "topology: {source: slurm, file: /nowhere/topology.conf}\n")
    run = local.submit_script("true", "--wait")
    assert local.view(run)["state"] == "COMPLETED"
    reason = "keep the scheduler's order: topology.file /nowhere/topology.conf cannot be read"
    assert reason in (run / "attempts/1/job.err").read_text()
