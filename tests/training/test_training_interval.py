"""When checkpoints are due, and which of them stay."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from training_runs import TINY, config, finish, launched

from torusrun.training.checkpoint.interval import FIRST_STEPS, Interval, daly_s
from torusrun.training.checkpoint.manifest import complete_checkpoints
from torusrun.training.checkpoint.store import Point, kept
from torusrun.training.recipe.train import CheckpointKeys, ScheduleKeys


def lost(interval_s: float, save_s: float, failure_s: float) -> float:
    """The share of the time that saves take, and that steps take which are computed again: half an interval each."""
    return save_s / interval_s + interval_s / 2 / failure_s


@pytest.mark.parametrize("number", range(20))
def test_no_other_interval_loses_less(chance: Random, number: int) -> None:
    save_s, failure_s = 10 ** chance.uniform(-3, 1), 10 ** chance.uniform(3, 7)
    best = lost(daly_s(save_s, failure_s), save_s, failure_s)
    assert all(lost(daly_s(save_s, failure_s) * factor, save_s, failure_s) > best for factor in (0.5, 0.9, 1.1, 2.0))


def test_the_interval_follows_what_is_measured_and_all_ranks_know_it() -> None:
    first, other = Interval(None, 5000.0), Interval(None, 5000.0)
    for one in (first, other):
        one.begin(steps=200, now_s=10.0)
    assert not first.due(200, 200 + FIRST_STEPS - 1) and first.due(200, 200 + FIRST_STEPS)
    after = first.measured(250, 10.0 + 250 / 5, save_s=0.1, writing_s=0.5)
    assert after == round(daly_s(0.1, 5000.0) * 1) == 32, "a step takes a second"
    for one in (first, other):
        one.next(250, after)
        assert not one.due(280, 281) and one.due(281, 282) and one.due(281, 300), "several steps may be taken at once"
    assert first.measured(282, 10.0 + 282 / 5, save_s=0.1, writing_s=600.0) > 500, "the disk is slower than that"


def test_an_interval_that_the_run_names_holds() -> None:
    named = Interval(7, 5000.0)
    named.begin(3, 0.0)
    assert [step for step in range(4, 30) if named.due(step - 1, step)] == [7, 14, 21, 28] and not named.measures


@pytest.mark.parametrize("number", range(30))
def test_what_stays_is_what_would_stay_of_all(chance: Random, number: int) -> None:
    keys = CheckpointKeys(chance.randrange(1, 5), chance.random() < 0.5)
    seen, stay = [], []
    step, epoch = 0, 0.0
    for _ in range(40):
        step, epoch = step + chance.randrange(1, 9), epoch + chance.random()
        seen.append(Point(step, epoch, chance.choice([None, chance.randrange(5) / 4])))
        found = kept([*stay, seen[-1]], keys)
        stay = [point for point in [*stay, seen[-1]] if point.step in found]
        assert found == kept(seen, keys), "a deleted checkpoint is not missed later"
        assert {point.step for point in seen[-keys.last :]} <= found
        accuracies = [point.accuracy for point in seen if point.accuracy is not None]
        if keys.best and accuracies:
            assert max(accuracies) in {point.accuracy for point in stay}


def test_ranks_save_together_at_an_interval_that_one_of_them_measures(tmp_path: Path) -> None:
    keys = {**TINY, "epochs": 3, "checkpoint_every_steps": None}
    run = finish({**config(tmp_path, (2, 1), **keys), "mean_time_to_failure_s": 0.1})
    steps = [event["step"] for event in run.events("checkpoint")]
    assert steps[0] == FIRST_STEPS and len(steps) > 2, f"with a failure in 0.1 s they are frequent: {steps}"
    assert all(0 < event["seconds"] < 10 and event["writing_s"] > 0 for event in run.events("checkpoint"))


@pytest.mark.parametrize("every", [7, 23], ids=["", "also due then"])
def test_the_best_checkpoint_stays(tmp_path: Path, every: int) -> None:
    keys = {**TINY, "checkpoint_every_steps": every, "checkpoints": CheckpointKeys(last=1, best=True)}
    run = finish(config(tmp_path, (2, 1), **keys))
    manifests = [json.loads(path.read_text()) for path in (tmp_path / "checkpoints").glob("*/manifest.json")]
    evaluated = run.events("eval")
    first, last = (event["accuracy"] for event in evaluated)
    assert first < last, "the end is the best here: otherwise it would stay without its accuracy"
    found = {manifest["step"]: manifest.get("accuracy") for manifest in manifests}
    assert found == {event["step"]: pytest.approx(event["accuracy"], abs=1e-4) for event in evaluated}
    saves = [event["step"] for event in run.events("checkpoint")]
    assert saves.count(evaluated[0]["step"]) == 1 and len(saves) == len(set(saves)), "no state is written twice"


def test_a_training_that_diverges_keeps_its_good_checkpoints_and_ends(tmp_path: Path) -> None:
    explodes = ScheduleKeys("step", warmup_epochs=0.0, options={"at": (1.0,) * 5, "factor": 1e6})
    keys = {**TINY, "schedule": explodes, "checkpoints": CheckpointKeys(last=1, memory=True)}
    with launched(config(tmp_path, (2, 1), **keys)) as launch:
        assert launch.codes() == [1, 1], launch.stderr_text
    (newest,) = complete_checkpoints(tmp_path / "checkpoints")
    assert newest.step == 21, "the epoch ends after 23 steps"
    for log in launch.logs:  # the same text in every attempt and on every rank: that ends a run that keeps going
        (line,) = log.read_text().splitlines()
        assert "after step 28 the loss or a weight is not finite" in line and "step-00000021" in line
    assert not (tmp_path / "memory").exists(), "the next attempt must not continue from such a state"
