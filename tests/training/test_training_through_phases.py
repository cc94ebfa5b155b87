"""A training whose batch, images and weight decay change, with a branch: it resumes anywhere with the same bits."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from phased import CPU, EPOCHS, LARGE, SAMPLES, SMALL, STEPS, learner
from phased import group as group
from states import saved
from training_runs import TRAIN, assert_same_state, config, finish, launched, read_lines

from torusrun.training.checkpoint.loading import load as load_state
from torusrun.training.checkpoint.store import CheckpointFolder
from torusrun.training.config import Ranks
from torusrun.training.learner import Learner
from torusrun.training.progress import Progress
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import PhaseKeys, ScheduleKeys


def finished(learning: Learner) -> dict[str, Any]:
    """What a training ends with, by name."""
    while not learning.finished:
        learning.step(stop=False)
    state = learning.state()
    (member,) = state["ensemble"]["members"]
    parts = {"weights": state["model"], "velocity": state["optimizer"], "member": member}
    return {f"{part} of {name}": value for part, held in parts.items() for name, value in held.items()}


def test_every_sample_comes_once_per_epoch_and_a_resumed_run_ends_in_the_same_bits(group: None, tmp_path: Path) -> None:
    undisturbed, watched = learner(tmp_path)
    expected = finished(undisturbed)
    counts = [watched.asked[epoch, sample] for epoch in range(EPOCHS) for sample in range(SAMPLES)]
    assert set(counts) == {1}, "each epoch must bring every sample exactly once"
    assert undisturbed.progress == Progress(sum(STEPS), 17 * 60 + 21 * 90)
    # Before, at and after the change of batch, size and decay; at the start of the branch, in it, at its end, after it.
    for steps in (16, 17, 18, 29, 30, 32, 33):
        first, _ = learner(tmp_path)
        for _ in range(steps):
            first.step(stop=False)
        folder = CheckpointFolder(tmp_path / str(steps), attempt=1)
        name = saved(folder, first.state(), first.progress, first.epochs)
        assert folder.newest is not None and folder.newest.progress == first.progress
        resumed, rest = learner(tmp_path)
        resumed.restore(load_state(tmp_path / str(steps), name, folder.newest.sha256["state.pt"], CPU))
        found = finished(resumed)
        assert resumed.progress == undisturbed.progress
        assert found.keys() == expected.keys()
        assert not [key for key in expected if not torch.equal(expected[key], found[key])], f"resumed at {steps} steps"
        assert rest.steps == watched.steps[steps:], "the rest must bring the same samples in the same size"
        assert sum(rest.asked.values()) == undisturbed.progress.samples - first.progress.samples


def test_the_data_set_receives_the_view_and_the_next_samples(group: None, tmp_path: Path) -> None:
    learning, watched = learner(tmp_path)
    finished(learning)
    assert watched.views == [SMALL, LARGE, LARGE._replace(size=8)], "a change of batch alone is none of the view"
    assert [view for view, _ in watched.steps] == [SMALL] * 17 + [LARGE] * 15 + [LARGE._replace(size=8)] * 6
    last_of_a_view = {17, 32, 38}
    assert [number for number, _ in watched.hints] == [n for n in range(1, 39) if n not in last_of_a_view]
    assert all(samples == watched.steps[number][1] for number, samples in watched.hints)


def test_a_training_that_is_done_is_evaluated_as_its_images_looked(group: None, tmp_path: Path) -> None:
    learning, _ = learner(tmp_path)
    finished(learning)
    again, watched = learner(tmp_path)
    again.restore(learning.state())
    found, before = again.evaluate(), learning.evaluate()
    assert found == before and len(found.members) == 1
    assert watched.views == [LARGE._replace(size=8)]


def test_a_run_does_not_resume_on_a_data_set_that_has_changed(group: None, tmp_path: Path) -> None:
    learning, watched = learner(tmp_path)
    learning.step(stop=False)
    state, watched.train_samples = learning.state(), SAMPLES - 1
    with pytest.raises(ConfigError, match=rf"there are {SAMPLES - 1} training samples of .*, and {SAMPLES} .* were "):
        learning.restore(state)
    watched.train_samples, watched.identity = SAMPLES, "other files"
    with pytest.raises(ConfigError, match="as when the run began, but not the same ones"):
        learning.restore(state)


def test_the_rate_and_the_totals_follow_the_samples(group: None, tmp_path: Path) -> None:
    learning, _ = learner(tmp_path)
    assert learning.course.total_steps() == 38, "17 of 60 samples, then 21 of 90"
    for _ in range(18):
        learning.step(stop=False)
    assert learning.progress == Progress(18, 17 * 60 + 90)
    assert learning.course.total_steps(learning.progress) == 38
    epochs = (17 * 60 + 45) / SAMPLES
    assert learning.last_rate == pytest.approx(TRAIN.optimizer.lr * epochs / TRAIN.schedule.warmup_epochs)


def test_two_ranks_resume_across_a_change_of_size_batch_rate_and_decay(tmp_path: Path) -> None:
    phases = (
        PhaseKeys(0.3, batch=108, lr=(0.05, 0.2)),  # 4 steps
        PhaseKeys(0.7, batch=144, lr=(0.2,), size=12),  # 4
        PhaseKeys(1.0, batch=108, lr=(0.2, 0.0), size=8, weight_decay=0.01, augment=False),  # 4
    )
    keys = {"epochs": 1, "phases": phases, "schedule": ScheduleKeys(), "checkpoint_every_steps": 5, "trace": True}
    undisturbed, resumed = tmp_path / "undisturbed", tmp_path / "resumed"
    undisturbed.mkdir()
    finish(config(undisturbed, (2, 1), **keys))
    shutil.copytree(undisturbed, resumed)
    for name in ("step-00000010", "step-00000012"):
        shutil.rmtree(resumed / "checkpoints" / name)
    run = finish(config(resumed, (2, 1), attempt=2, **keys))
    assert run.events("start")[0]["resumed_from"] == "step-00000005", "in the middle of the second phase"
    assert run.events("start")[0]["total_steps"] == 12
    assert_same_state(resumed, undisturbed, 12, "resumed in the second phase")
    _, *whole = read_lines(undisturbed / "attempts/1/trace.jsonl")
    _, *rest = read_lines(resumed / "attempts/2/trace.jsonl")
    assert [line["phase"] for line in whole] == [0] * 4 + [1] * 4 + [2] * 4
    assert [(line["batch"], line["size"]) for line in whole] == [(108, 8)] * 4 + [(144, 12)] * 4 + [(108, 8)] * 4
    assert rest == whole[5:]


def test_a_batch_that_does_not_divide_is_named(group: None, tmp_path: Path) -> None:
    learning, _ = learner(tmp_path)
    learning._ranks = Ranks(0, 7, 0)
    with pytest.raises(ValueError, match="the batch after 0 samples is 60: it does not divide by 7 ranks"):
        learning.step(stop=False)


def test_metrics_count_samples(tmp_path: Path) -> None:
    finish(config(tmp_path, epochs=1, batch=479, log_every_steps=1))
    rows = [row for row in read_lines(tmp_path / "metrics.jsonl") if row["event"] == "step"]
    assert [row["samples"] for row in rows] == [479, 958, 1437]
    assert {row["total_samples"] for row in rows} == {SAMPLES} and {row["total_steps"] for row in rows} == {3}


def test_checkpoints_of_an_older_version_are_refused_in_one_line(tmp_path: Path) -> None:
    old = tmp_path / "checkpoints/step-00000007"
    old.mkdir(parents=True)
    (old / "manifest.json").write_text('{"schema": 1, "step": 7, "epoch": 0.3, "attempt": 1, "files": {}}')
    with launched(config(tmp_path, epochs=1)) as launch:
        assert launch.codes() == [2]
    assert "Traceback" not in launch.stderr_text
    (line,) = [line for line in launch.stderr_text.splitlines() if line.startswith("training:")]
    assert "step-00000007: this checkpoint has schema 1, and this torusrun reads schema 2; end the run with" in line
    assert (old / "manifest.json").exists(), "nothing of it may be removed"
