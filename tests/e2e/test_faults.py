"""Faults in a run; after a resume it has the same bits."""

import json
import signal
from pathlib import Path
from random import Random

import pytest

from tests.e2e.places import (
    LAST_STEP,
    LONG,
    TWO_RANKS,
    Place,
    assert_same_bits,
    ledger,
    metrics,
    seconds_to,
    started,
    until,
    wait_for_step,
)

SHORT = ("--set", "train.epochs=1")


def resume_to_the_end(place: Place, run: Path, undisturbed: Path, *words: str) -> str:
    said = place.succeeds("resume", run.name, "--wait", *words)
    assert metrics(run, "done")[-1]["step"] == LAST_STEP
    assert_same_bits(run, undisturbed)
    return said.stdout


def test_a_killed_rank_ends_the_attempt_and_its_resume_is_bit_identical(
    place: Place, undisturbed: Path, chance: Random
) -> None:
    rank, step = chance.randrange(4), chance.randrange(30, LAST_STEP - 120)
    run = place.submit_held()
    wait_for_step(run, step)
    started = json.loads((run / f"attempts/1/ranks/{rank:04d}.start.json").read_text())
    place.kill(started["host"], started["pid"])
    place.release(run)
    view = until(lambda: (v := place.view(run))["state"] == "FAILED" and v, "the state FAILED")
    died = json.loads((run / f"attempts/1/ranks/{rank:04d}.end.json").read_text())
    assert ledger(run, "ended")[0]["t"] - died["ended_s"] < 600, "the others would wait for it for half an hour"
    expected = f"rank {rank} ({started['host']}, local rank {started['local_rank']}) was killed by SIGKILL after step "
    assert view["reason"].startswith(expected), view["reason"]
    until(lambda: place.torusrun("watch", run.name).returncode == 1, "watch to say that the run failed")
    assert "resumes from step-" in resume_to_the_end(place, run, undisturbed)
    events = [(e["event"], e["attempt"]) for e in ledger(run)]
    assert events == [(kind, n) for n in (1, 2) for kind in ("submitting", "submitted", "started", "ended")]
    assert [e["state"] for e in ledger(run, "ended")] == ["FAILED", "COMPLETED"]
    assert metrics(run, "start")[-1]["resumed_from"] == ledger(run, "submitting")[-1]["resumes"]


def test_a_checkpoint_in_flight_is_completed_although_rank_0_is_killed(place: Place) -> None:
    if place.cluster != "local":
        pytest.skip("tried on this machine; whether a cluster lets a rank's last process finish has not been tried")
    run = place.submit(*LONG, "--set", "train.checkpoint_every_steps=10")
    wait_for_step(run, 1)
    trainer = started(run)
    [writer] = [process.pid for process in place.processes(run) if process.parent == trainer["pid"]]
    place.signal(trainer["host"], writer, signal.SIGSTOP)
    done = max([row["step"] for row in metrics(run, "checkpoint")], default=0)
    wait_for_step(run, done + 20)  # the save after the one in flight waits
    place.kill(trainer["host"], trainer["pid"])  # then the kernel lets its stopped child continue
    assert place.watch(run).returncode == 1
    complete = {path.parent.name: path for path in (run / "checkpoints").glob("step-*/manifest.json")}
    in_flight = complete.get(f"step-{done + 10:08d}")
    assert in_flight, f"{[*complete]}: the checkpoint in flight, of step {done + 10}, is missing"
    ended_s = (run / "attempts/1/end.json").stat().st_mtime
    assert ended_s >= in_flight.stat().st_mtime, "an attempt ends with the last of its processes"
    said = place.torusrun("resume", run.name)
    assert said.returncode == 0 and max(complete) in said.stdout, said.stdout + said.stderr
    place.torusrun("cancel", run.name)


def test_a_cancelled_run_resumes_past_a_torn_checkpoint(place: Place, undisturbed: Path) -> None:
    run = place.submit_held()  # the request ends the hold
    wait_for_step(run, 30)
    assert place.torusrun("cancel", run.name).returncode == 0
    assert place.watch(run).returncode == 1
    view = place.view(run)
    assert (view["state"], "cancelled by its user" in view["reason"]) == ("CANCELLED", True), view
    newest = max((run / "checkpoints").glob("step-*"))
    assert int(newest.name[5:]) == metrics(run, "stop")[-1]["step"], (
        "cancelling must leave a checkpoint of the last step"
    )
    with open(newest / "state.pt", "r+b") as file:
        file.truncate(1000)
    left_out = place.view(run)["hosts"][1:2] if place.excludes else []
    stdout = resume_to_the_end(place, run, undisturbed, *(word for host in left_out for word in ("--exclude", host)))
    assert not {*left_out} & {*ledger(run, "started")[-1]["hosts"]}, "the host was to be left out"
    older = metrics(run, "start")[-1]["resumed_from"]
    assert older < newest.name and f"resumes from {older}" in stdout


def test_a_time_limit_leaves_a_checkpoint_to_continue_from(place: Place, undisturbed: Path) -> None:
    limit_s = round(place.stop_before_s() + seconds_to(undisturbed, 60))
    run = place.submit(*LONG, "--set", f"time={limit_s}s")
    assert place.watch(run).returncode == 1
    view = place.view(run)
    assert (view["state"], f"its time limit of {limit_s} s is near" in view["reason"]) == ("TIMEOUT", True), view
    stopped = metrics(run, "stop")
    assert (run / "checkpoints").exists() == bool(metrics(run, "step")), "it must keep what it has"
    assert place.torusrun("resume", run.name, "--time", "10m").returncode == 0
    begun = until(lambda: [row for row in metrics(run, "start") if row["attempt"] == 2], "the second attempt to begin")
    assert begun[0]["step"] == (stopped[-1]["step"] if stopped else 0), "it must go on where it stopped"
    place.torusrun("cancel", run.name)
    assert place.watch(run).returncode == 1


def test_a_run_folder_of_ones_own_with_blanks_and_quotes(place: Place) -> None:
    """Every path and value of the user passes the scheduler, bash and the launcher unchanged."""
    odd = place.folder / "my 'odd' \"$(touch pwned)\" runs 100%j"
    quoted = "'" + str(odd).replace("'", "''") + "'"
    hostile = "env.HOSTILE='$(touch pwned); `touch pwned`'"
    settings = ("--set", f"site={place.site('odd.yaml', runs=quoted)}", "--set", hostile)
    # Our training's handling of its own paths does not depend on the scheduler.
    run = (
        place.submit(*settings, *SHORT, *TWO_RANKS)
        if place.cluster == "local"
        else place.submit_script("true", *settings)
    )
    assert run.parent == odd
    said = place.watch(run)
    assert said.returncode == 0, said.stdout + said.stderr + place.torusrun("logs", run.name, "--all").stdout
    # Jobs and the daemons of a launcher start in the home of their user.
    found = place.run(["sh", "-c", 'find "$HOME" . -name "pwned*"']).stdout
    assert not found and not list(run.rglob("pwned")), f"a part of a path was run by a shell: {found}"
    assert run.stat().st_mode & 0o077 == 0, "a run folder is its owner's alone"


@pytest.mark.parametrize("setting", ["nodes=400", "time=9000h"])
def test_a_request_that_the_site_cannot_satisfy_is_reported(place: Place, setting: str) -> None:
    place.write_spec()
    said = place.torusrun("submit", "run.yaml", "--set", setting, "--set", "train.batch=1600", "--set", "grid=800x1")
    if said.returncode == 0:  # accepted by a scheduler that decides in the queue
        run = said.stdout.split()[0]
        view = until(lambda: (v := place.view(run))["state"] == "PENDING" and v, "the run to be pending")
        place.torusrun("cancel", run)
        until(lambda: place.view(run)["state"] == "CANCELLED", "the run to be cancelled")
        assert "cannot start like this" in view["reason"] or view["reason"] or place.cluster == "gridengine", view
    else:
        assert said.returncode in (2, 3) and "Traceback" not in said.stderr and said.stderr.count("\n") <= 2, (
            said.stderr
        )
