"""Runs that keep going without their user: over time limits, killed ranks and lost hosts, from one submit."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from random import Random

import pytest
import yaml

from tests.campaign import leftovers
from tests.campaign.schedule import Planned
from tests.campaign.trial import Trial
from tests.e2e.places import (
    LAST_STEP,
    LONG,
    ROOT,
    Local,
    Place,
    assert_same_bits,
    ledger,
    metrics,
    only_on,
    started,
    until,
    wait_for_step,
)
from torusrun.training.checkpoint import node_memory
from torusrun.training.checkpoint.manifest import newest_complete

# Rank 0 makes a checkpoint in each attempt; the fourth ends the run.
OVER_FOUR = (
    'cd "$TORUSRUN_CHECKPOINTS"; test "$RANK" != 0 || touch "step-$(ls | wc -l)"; '
    'until test "$(ls | wc -l)" -ge 4; do sleep 0.2; done'
)

# A rank is killed in every place by the test of `cancel` below.
STRUCK = {
    "local": ("kill-shell", "unknown"),
    "slurm": ("kill-launcher", "launcher"),
    "gridengine": ("kill-supervisor", "killed"),
    "pbs": ("kill-rank", "killed"),
}


def kill(place: Place, run: Path, rank: int, by: int = signal.SIGKILL) -> None:
    """Send a signal to a rank of the newest attempt."""
    number = ledger(run, "started")[-1]["attempt"]
    record = json.loads((run / f"attempts/{number}/ranks/{rank:04d}.start.json").read_text())
    place.signal(record["host"], record["pid"], by)


def completes(place: Place, run: Path) -> None:
    said = place.watch(run)
    assert said.returncode == 0, f"{said.stdout}{said.stderr}{(run / 'attempts/1/jobs.out').read_text()}"


def kept_by_writer(run: Path) -> set[str]:
    """The open files of the process that writes the checkpoints of a script, in the first attempt."""
    rank = started(run)["pid"]
    children = Path(f"/proc/{rank}/task/{rank}/children").read_text().split()
    [writer] = [pid for pid in children if b"checkpoint.writer" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return {os.readlink(link) for link in Path(f"/proc/{writer}/fd").iterdir()}


def short_limit(place: Place) -> str:
    """A time limit in which ranks start, whatever else this machine does, and are soon asked to stop."""
    run = place.submit_script("true")
    completes(place, run)
    (submitting,) = ledger(run, "submitting")
    start_s = max(1.0, started(run)["started_s"] - submitting["t"])
    return f"time={round(place.stop_before_s() + 2 + 4 * start_s)}s"


def test_a_run_over_several_time_limits_ends_from_one_submit(place: Place) -> None:
    several = ("--set", "keep_going={attempts: 9, without_progress: 8}", "--set", "checkpoints.folder=kept")
    run = place.submit_script(OVER_FOUR, *several, "--set", short_limit(place))
    completes(place, run)
    causes = [event["cause"] for event in ledger(run, "ended")]
    assert {*causes[:-1]} == {"time_limit"} and causes[-1] == "done" and len(causes) > 3
    resumes = [event.get("resumes") for event in ledger(run, "submitting")]
    assert resumes[-1] == "step-2" and resumes[0] is None
    jobs = {event["job"] for event in ledger(run, "started")}
    assert len(jobs) == (1 if place.cluster == "local" else len(causes)), "each time limit ends a job"
    assert len({event["job"] for event in ledger(run, "submitted")}) == 1, "there was one submit"
    until(lambda: not place.queued(), "the jobs that are not needed to leave the queue")
    assert place.view(run)["state"] == "COMPLETED"


def test_a_run_ends_as_well_by_jobs_that_are_submitted_in_turn(place: Place) -> None:
    if place.cluster == "local":
        pytest.skip("its jobs are turns of one process")
    only_on(place, "slurm")
    several = ("--set", "keep_going={attempts: 6, without_progress: 5}", "--set", "checkpoints.folder=kept")
    site = place.site("in-turn.yaml", attempts_by="dependency")
    run = place.submit_script(OVER_FOUR, *several, "--set", short_limit(place), "--set", f"site={site}")
    completes(place, run)
    added = [event["job"] for event in (*ledger(run, "submitted")[:1], *ledger(run, "job_added"))]
    used = [event["job"] for event in ledger(run, "started")]
    assert len(added) == 6 and 3 < len(used) < 6 and used == added[: len(used)], "in turn, as long as they are needed"
    until(lambda: not place.queued(), "the jobs that are not needed to leave the queue")
    assert place.view(run)["state"] == "COMPLETED"


def test_after_a_fault_the_next_attempt_begins_in_the_same_job(place: Place, undisturbed: Path, chance: Random) -> None:
    kind, cause = STRUCK[place.cluster]
    run = place.submit_held("--set", "keep_going.attempts=2")
    trial = Trial(place, Planned(1, place.cluster, kind, chance.randrange(30, 100), chance.randrange(4)), undisturbed)
    trial.run = run
    wait_for_step(run, trial.planned.step)
    trial.fault.strike(trial)
    place.release(run)
    completes(place, run)
    assert [event.get("cause", "unknown") for event in ledger(run, "ended")] == [cause, "done"]
    assert len({event["job"] for event in ledger(run, "started")}) == 1
    assert metrics(run, "done")[-1]["step"] == LAST_STEP
    assert_same_bits(run, undisturbed)


def test_a_run_continues_from_the_memory_of_its_host(place: Place, undisturbed: Path, chance: Random) -> None:
    if place.cluster != "local":
        pytest.skip("the hosts of a lab share their memory with this machine")
    overdue = node_memory.of_run("over", Path("/nowhere"))
    node_memory.make(overdue)
    node_memory.begin(overdue, until_s=1.0)
    kept = ("--set", "train.checkpoints={memory: true}", "--set", "train.checkpoint_every_steps=1000")
    run = place.submit_held("--set", "keep_going.attempts=2", *kept)
    wait_for_step(run, chance.randrange(30, 100))
    reported = metrics(run, "step")[-1]["step"]
    kill(place, run, chance.randrange(4))
    place.release(run)
    completes(place, run)
    start = metrics(run, "start")[-1]
    assert start["resumed_from"].startswith("memory of ") and start["step"] >= reported - 1, start
    assert start["resumed_from"] in place.torusrun("status", run.name, "--long").stdout
    memory = Path(json.loads((run / "attempts/2/config.json").read_text())["memory"])
    assert not overdue.exists(), "every start removes the copies of jobs that must be over"
    assert not memory.exists(), "a run that is done leaves nothing in the memory"
    assert_same_bits(run, undisturbed)


def test_a_script_with_our_checkpoints_continues_after_a_killed_rank_and_a_stop(local: Local) -> None:
    """The example, beside a folder `training` of the user's own."""
    example, code = ROOT / "examples/checkpoints", local.folder / "saved"
    (code / "training").mkdir(parents=True)
    (code / "training/__init__.py").write_text("raise SystemExit('this is not that of torusrun')")
    # The first two attempts are slow, so that they do not end before they are struck.
    paced = "time.sleep(args.pause if os.environ['TORUSRUN_ATTEMPT'] in '12' else 0)"
    script = (example / "saved_ddp.py").read_text().replace("import sys\n", "import os\nimport sys\n", 1)
    (code / "saved_ddp.py").write_text(script.replace("time.sleep(args.pause)", paced))
    spec = yaml.safe_load((example / "saved_ddp.yaml").read_text())
    command = ["python", "saved_ddp.py", "--steps", "100", "--every", "5", "--pause", "0.4"]
    local.put("saved.yaml", json.dumps({**spec, "site": "site.yaml", "code": "saved", "command": command}))
    run = local._submit("saved.yaml")
    until(lambda: newest_complete(run / "checkpoints"), "a checkpoint")
    assert str(run / "attempts/1/alive") in kept_by_writer(run), "the end of an attempt must wait for its writer"
    kill(local, run, 0)
    second = run / "attempts/2/logs/rank-0000.log"
    until(lambda: second.exists() and " loss=" in second.read_text(), "a step of the next attempt")
    kill(local, run, 1, signal.SIGTERM)  # both ranks listen to it now: they have trained a step together
    said = local.watch(run)
    logs = [path.read_text() for path in sorted(run.glob("attempts/*/logs/rank-0000.log"))]
    assert said.returncode == 0, f"{said.stdout}{said.stderr}{logs}"
    assert [event["cause"] for event in ledger(run, "ended")] == ["killed", "stopped", "done"], logs
    begun = [int(re.findall(r"begins at step=(\d+)", log)[0]) for log in logs]
    resumes = [event.get("resumes") for event in ledger(run, "submitting")]
    assert resumes == [None, *(f"step-{step:08d}" for step in begun[1:])], "torusrun and the script know the same ones"
    assert metrics(run, "checkpoint")[-1]["step"] == 100, "the account knows them, too"
    assert local.torusrun("collect", run.name, "copy").returncode == 0
    assert [path.name for path in (local.folder / "copy/checkpoints").iterdir()] == ["step-00000100"]


def test_a_sharded_script_continues_after_a_killed_rank_and_on_other_ranks(local: Local, tmp_path: Path) -> None:
    example, code = ROOT / "examples/checkpoints", local.folder / "sharded"
    local.put_hold("sharded")
    held = {"import time\n": "import time\n\nimport hold\n", "time.sleep(args.pause)": "step == 10 and hold.wait()"}
    text = (example / "sharded_fsdp.py").read_text()
    for old, new in held.items():
        text = text.replace(old, new, 1)
    (code / "sharded_fsdp.py").write_text(text)
    spec = yaml.safe_load((example / "sharded_fsdp.yaml").read_text())
    steps = ["sharded_fsdp.py", "--steps", "20", "--every", "5"]
    changes = {"site": "site.yaml", "code": "sharded", "command": ["python", *steps]}
    local.put("sharded.yaml", json.dumps({**spec, **changes}))
    run = local._submit("sharded.yaml")
    until(lambda: newest_complete(run / "checkpoints"), "a checkpoint")
    before = newest_complete(run / "checkpoints")
    assert before
    shutil.copytree(before.path, tmp_path / "ckpt" / before.name)
    kill(local, run, 3)
    local.release(run)
    completes(local, run)
    logs = [path.read_text() for path in sorted(run.glob("attempts/*/logs/rank-0000.log"))]
    assert [event["cause"] for event in ledger(run, "ended")] == ["killed", "done"], logs
    begun = int(re.findall(r"begins at step=(\d+)", logs[1])[0])
    assert ledger(run, "submitting")[-1]["resumes"] == f"step-{begun:08d}"
    # On two ranks, from before the kill: so the run is compared with one that nobody disturbed.
    launched = ["torchrun", "--nproc-per-node", "2", str(example / steps[0]), *steps[1:]]
    entry = {**os.environ, "PYTHONPATH": str(ROOT / "training/entry"), "OMP_NUM_THREADS": "1"}
    said = subprocess.run(launched, cwd=tmp_path, env=entry, capture_output=True, text=True, timeout=600)
    assert f"rank 1 of 2 begins at step={before.step}" in said.stdout, said.stdout + said.stderr
    losses = [float(re.findall(r"step=20 loss=(\S+)", each)[0]) for each in (logs[1], said.stdout)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)


def test_cancelling_a_run_that_keeps_going_ends_all_its_jobs(place: Place, chance: Random) -> None:
    run = place.submit(*LONG, "--set", "keep_going={attempts: 3, without_progress: 9}")
    wait_for_step(run, 1)
    kill(place, run, chance.randrange(4))
    until(lambda: [row for row in metrics(run, "step") if row["attempt"] == 2], "a step of the second attempt")
    assert place.torusrun("cancel", run.name).returncode == 0
    assert place.watch(run).returncode == 1
    assert place.view(run)["state"] == "CANCELLED"
    until(lambda: not place.queued(), "the queue to be empty")
    assert len(ledger(run, "started")) == 2
    assert leftovers.after(place, run) == []


def test_a_program_that_fails_alike_is_not_started_again_and_again(place: Place) -> None:
    """Whatever process it is, and although it leaves a new file beside its checkpoints each time."""
    script = 'touch "$TORUSRUN_CHECKPOINTS/log-$$.txt"; echo "process $$ is broken" >&2; exit 3'
    # Each job that is not needed takes Grid Engine some seconds.
    run = place.submit_script(script, "--set", "keep_going={attempts: 9, without_progress: 9}")
    assert place.watch(run).returncode == 1
    view = place.view(run)
    assert view["state"] == "FAILED" and "two attempts in a row failed after the same step" in view["reason"], view
    # On a busy machine a rank may be ended before its message is there.
    alike = ["is broken" in event["evidence"].get("said", "") for event in ledger(run, "ended")]
    assert alike[-3:] == [True] * 3 and [True] * 3 not in [alike[n : n + 3] for n in range(len(alike) - 3)], alike
    until(lambda: not place.queued(), "the queue to be empty")


def test_a_controller_that_is_away_costs_pauses_and_not_the_run(place: Place) -> None:
    only_on(place, "slurm")
    run = place.submit_script('test "$TORUSRUN_ATTEMPT" != 1 || exec sleep 600', "--set", "keep_going={attempts: 2}")
    rank = until(lambda: (run / "attempts/1/ranks/0001.start.json").exists() and started(run, 1), "a rank to start")
    with place.down() or pytest.fail("this place has a controller"):
        place.kill(rank["host"], rank["pid"])
        until(lambda: sum(event["cause"] == "launcher" for event in ledger(run, "ended")) > 2, "three ends", 120)
    completes(place, run)
    assert len({event["job"] for event in ledger(run, "started")}) == 1


@pytest.mark.parametrize("which", [1, 0], ids=["second host", "first host"])
def test_a_lost_host_is_replaced_by_a_spare_or_by_the_next_job(place: Place, which: int) -> None:
    if not place.power_off or not place.power_on:
        pytest.skip("this machine is the only host")
    if which == 1:
        only_on(place, "slurm")
    run = place.submit_held("--set", "keep_going={attempts: 3, spares: 1, without_progress: 3}")
    wait_for_step(run, 40)
    lost = ledger(run, "started")[0]["hosts"][which]
    place.power_off(lost)
    try:
        if place.cluster == "gridengine" and which == 0:  # its nodes may not run qalter: the user does
            until(lambda: ledger(run, "ended"), "the deputy to record the end")
            (job,) = {event["job"] for event in ledger(run, "submitted")}
            said = place.run(["qalter", "-tc", "2", job])
            assert said.returncode == 0, said.stderr
        began = until(lambda: [e for e in ledger(run, "started") if e["attempt"] > 1], "another attempt", timeout_s=500)
        assert lost not in began[0]["hosts"]
        same_job = began[0]["job"] == ledger(run, "started")[0]["job"]
        assert same_job == (which == 1), (run / "attempts/1/jobs.out").read_text()
        assert place.watch(run).returncode == 0, place.view(run)
    finally:
        place.power_on(lost)
    assert "host_lost" in [event["cause"] for event in ledger(run, "ended")]
