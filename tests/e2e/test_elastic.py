"""Ranks that lost another one continue in their processes."""

import json
from pathlib import Path
from random import Random

from tests.campaign import leftovers
from tests.e2e.places import LAST_STEP, Place, assert_same_bits, ledger, metrics, only_on, until

ELASTIC = ("--set", "keep_going={attempts: 2, elastic: true, without_progress: 9}")
MEMORY = ("--set", "train.checkpoints={memory: true}", "--set", "train.checkpoint_every_steps=1000")


def programs(run: Path, attempt: int) -> list[tuple[str, int]]:
    """The host and the process of each rank, once all have begun."""
    folder = run / f"attempts/{attempt}/ranks"
    until(lambda: len([*folder.glob("*.start.json")]) == 4, f"the ranks of attempt {attempt}", 240)
    records = [json.loads(path.read_text()) for path in sorted(folder.glob("*.start.json"))]
    return [(record["host"], record["pid"]) for record in records]


def steps(run: Path, attempt: int) -> list[int]:
    return [row["step"] for row in metrics(run, "step") if row["attempt"] == attempt]


def test_the_ranks_that_are_left_continue_in_their_processes(place: Place, undisturbed: Path, chance: Random) -> None:
    only_on(place, "local", "slurm")
    memory = place.cluster == "local"  # the hosts of a lab share their memory with this machine
    run = place.submit_held(*ELASTIC, *(MEMORY if memory else ()), attempts=3)
    after = chance.randrange(30, 60)
    until(lambda: steps(run, 1)[after:], f"{after} steps of the first attempt", 240)
    first, (lost, other) = programs(run, 1), chance.sample(range(4), 2)
    place.kill(*first[lost])
    place.release(run, 1)
    second = programs(run, 2)
    until(lambda: steps(run, 2)[after:], f"{after} steps of the second attempt", 240)
    assert [a == b for a, b in zip(first, second, strict=True)] == [rank != lost for rank in range(4)]
    assert not memory or steps(run, 2)[0] >= steps(run, 1)[-1], "at most one step is computed again"
    place.kill(*second[other])
    place.release(run, 2)
    third = programs(run, 3)
    place.kill(*third[lost])  # in most cases before the ranks have met
    place.release(run, 3)
    said = place.watch(run)
    output = [path.read_text() for path in sorted(run.glob("attempts/*/jobs.out"))]
    assert said.returncode == 0, f"{said.stdout}{said.stderr}{output}"
    assert [event["cause"] for event in ledger(run, "ended")] == ["killed", "killed", "killed", "done"], output
    assert [event.get("standby", False) for event in ledger(run, "started")] == [False, True, True, True], output
    assert metrics(run, "done")[-1]["step"] == LAST_STEP
    assert_same_bits(run, undisturbed)
    assert leftovers.after(place, run) == []
