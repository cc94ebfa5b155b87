"""Sweeps: six runs from one file, two at a time, of which one fails and is resumed alone."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.places import Place, ledger, only_on, until

MEMBERS = 6
# Member 3 fails, but not in its second attempt. Members 0 and 1 wait for each other, but not for ever.
FAILS_ONCE = """
touch here
case $WHICH in 0) other=1;; 1) other=0;; 3) test -d ../2; exit $((3 * $?));; *) exit;; esac
for _ in $(seq 600); do test -e ../../../${TORUSRUN_RUN%.*}.$other/attempts/1/here && exit; sleep 0.2; done
exit 9
"""
VALUES = ("--sweep", f"env.WHICH={','.join(map(str, range(MEMBERS)))}", "--set", "sweep.at_once=2")


def members(place: Place, sweep: str) -> list[Path]:
    said = place.succeeds("status", sweep, "--json")
    return [Path(run["folder"]) for run in json.loads(said.stdout)["runs"]]


def states(place: Place, sweep: str) -> list[str]:
    return [run["state"] for run in json.loads(place.torusrun("status", sweep, "--json").stdout)["runs"]]


def most_at_once(runs: list[Path]) -> int:
    """The largest number of members that were at work at the same time, by their ledgers."""
    begins = [(event["t"], 1) for run in runs for event in ledger(run, "started")]
    ends = [(event["t"], -1) for run in runs for event in ledger(run, "ended")]
    at_work = most = 0
    for _, change in sorted(begins + ends):
        at_work += change
        most = max(most, at_work)
    return most


def test_six_members_two_at_once_and_a_failed_one_resumed_alone(place: Place) -> None:
    place.write_script(FAILS_ONCE)
    said = place.torusrun("submit", "script.yaml", *VALUES, "--wait")
    assert said.returncode == 1, f"one member must fail: {said.stdout}{said.stderr}"
    sweep = said.stdout.split()[0]
    runs = members(place, sweep)
    assert [run.name for run in runs] == [f"{sweep}.{number}" for number in range(MEMBERS)]
    assert states(place, sweep) == ["COMPLETED"] * 3 + ["FAILED"] + ["COMPLETED"] * 2, said.stdout + said.stderr
    assert most_at_once(runs) == 2, "at most two, and at times two, must be at work"
    jobs = [ledger(run, "submitted")[0]["job"] for run in runs]
    assert jobs == [ledger(run, "started")[0]["job"] for run in runs], "each must run in its own job, or task"

    said = place.succeeds("resume", sweep, "--wait")
    assert [len(ledger(run, "submitted")) for run in runs] == [1, 1, 1, 2, 1, 1], "only the failed one runs again"
    said = place.torusrun("status", sweep, "--json")
    rows = json.loads(said.stdout)["members"]
    assert [(row["settings"]["env.WHICH"], row["state"]) for row in rows] == [
        (str(n), "COMPLETED") for n in range(MEMBERS)
    ]


def test_cancelling_a_sweep_ends_members_that_run_and_that_wait(place: Place) -> None:
    only_on(place, "slurm")
    place.write_script("sleep 600")
    said = place.succeeds("submit", "script.yaml", *VALUES)
    sweep = said.stdout.split()[0]
    runs = members(place, sweep)
    until(lambda: sum(bool(ledger(run, "started")) for run in runs) == 2, "two members to be at work")
    said = place.succeeds("cancel", sweep)
    until(lambda: set(states(place, sweep)) == {"CANCELLED"}, f"all to be cancelled: {states(place, sweep)}")
    until(lambda: not place.queued(), "the queue to be empty")
    assert sum(bool(ledger(run, "started")) for run in runs) <= 3, "no cancelled member may begin"
