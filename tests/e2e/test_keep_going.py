"""Runs that keep going without their user: over time limits, killed ranks and lost hosts, from one submit."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from tests.e2e.places import (
    LAST_STEP,
    LONG,
    Place,
    assert_same_bits,
    ledger,
    metrics,
    until,
    wait_for_step,
)

# Rank 0 makes a checkpoint in each attempt; the fourth ends the run.
OVER_FOUR = (
    'cd "$TORUSRUN_CHECKPOINTS"; test "$RANK" != 0 || touch "step-$(ls | wc -l)"; '
    'until test "$(ls | wc -l)" -ge 4; do sleep 0.2; done'
)


def kill(place: Place, run: Path, rank: int) -> None:
    """SIGKILL a rank of the newest attempt."""
    number = ledger(run, "started")[-1]["attempt"]
    started = json.loads((run / f"attempts/{number}/ranks/{rank:04d}.start.json").read_text())
    place.kill(started["host"], started["pid"])


def test_a_run_over_several_time_limits_ends_from_one_submit(place: Place) -> None:
    limit_s = place.stop_before_s() + 8
    several = ("--set", "keep_going={attempts: 20, without_progress: 8}", "--set", "checkpoints.folder=kept")
    run = place.submit_script(OVER_FOUR, *several, "--set", f"time={limit_s:g}s")
    said = place.watch(run)
    assert said.returncode == 0, f"{said.stdout}{said.stderr}{(run / 'attempts/1/jobs.out').read_text()}"
    causes = [event["cause"] for event in ledger(run, "ended")]
    assert {*causes[:-1]} == {"time_limit"} and causes[-1] == "done" and len(causes) > 3
    resumes = [event.get("resumes") for event in ledger(run, "submitting")]
    assert resumes[-1] == "step-2" and resumes[0] is None
    jobs = {event["job"] for event in ledger(run, "started")}
    assert len(jobs) == (1 if place.cluster == "local" else len(causes)), "each time limit ends a job"
    assert len({event["job"] for event in ledger(run, "submitted")}) == 1, "there was one submit"
    until(lambda: not place.queued(), "the jobs that are not needed to leave the queue")
    assert place.view(run)["state"] == "COMPLETED"


def test_after_a_killed_rank_the_next_attempt_begins_in_the_same_job(
    place: Place, undisturbed: Path, chance: Random
) -> None:
    run = place.submit("--set", "keep_going.attempts=2")
    wait_for_step(run, chance.randrange(30, 100))
    kill(place, run, chance.randrange(4))
    said = place.watch(run)
    assert said.returncode == 0, f"{said.stdout}{said.stderr}{(run / 'attempts/1/jobs.out').read_text()}"
    assert [event["cause"] for event in ledger(run, "ended")] == ["killed", "done"]
    assert len({event["job"] for event in ledger(run, "started")}) == 1
    assert metrics(run, "done")[-1]["step"] == LAST_STEP
    assert_same_bits(run, undisturbed)


def test_cancelling_a_run_that_keeps_going_ends_all_its_jobs(place: Place) -> None:
    run = place.submit(*LONG, "--set", "keep_going.attempts=3")
    wait_for_step(run, 5)
    assert place.torusrun("cancel", run.name).returncode == 0
    assert place.watch(run).returncode == 1
    assert place.view(run)["state"] == "CANCELLED"
    until(lambda: not place.queued(), "the queue to be empty")
    assert len(ledger(run, "started")) == 1


def test_a_program_that_fails_twice_alike_is_not_started_again(place: Place) -> None:
    run = place.submit_script("echo it is broken >&2; exit 3", "--set", "keep_going={attempts: 9, without_progress: 5}")
    assert place.watch(run).returncode == 1
    view = place.view(run)
    assert view["state"] == "FAILED" and "two attempts in a row failed after the same step" in view["reason"], view
    assert [event["attempt"] for event in ledger(run, "ended")] == [1, 2]
    until(lambda: not place.queued(), "the queue to be empty")


@pytest.mark.parametrize("which", [1, 0], ids=["second host", "first host"])
def test_a_lost_host_is_replaced_by_a_spare_or_by_the_next_job(place: Place, which: int) -> None:
    if not place.power_off or not place.power_on:
        pytest.skip("this machine is the only host")
    run = place.submit("--set", "keep_going={attempts: 3, spares: 1, without_progress: 3}", "--set", "train.epochs=20")
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
