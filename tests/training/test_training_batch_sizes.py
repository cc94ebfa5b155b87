"""A batch that changes during the run: the samples decide what comes next and when the end is reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from training_runs import TRAIN, config, finish, launched, read_lines

from training.checkpoint.loading import load as load_state
from training.checkpoint.store import CheckpointFolder
from training.config import Config
from training.learner import Learner
from training.parts import Parts, build_parts
from training.progress import Progress
from training.ranks import Ranks
from training.recipe.phases import PhaseKeys
from training.recipe.reading import record

CPU = torch.device("cpu")
SAMPLES = 1437
SWITCH = 1000  # samples, in the middle of the first epoch
EPOCHS = 2


PHASES = (PhaseKeys(SWITCH / SAMPLES, batch=60), PhaseKeys(EPOCHS, batch=90))


@pytest.fixture
def group() -> Iterator[None]:
    """A process group of this process alone, on one thread: two that share busy cores take turns at every operation."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
    torch.set_num_threads(threads)


class Watched:
    """A data set that notes which samples it was asked for."""

    def __init__(self, parts: Parts) -> None:
        self._data, self.asked = parts.data, Counter[tuple[int, int]]()

    def __getattr__(self, name: str) -> object:
        return getattr(self._data, name)

    def train_batch(self, samples: list[tuple[int, int]]) -> tuple[torch.Tensor, torch.Tensor]:
        self.asked.update(samples)
        return self._data.train_batch(samples)


def learner(folder: Path) -> tuple[Learner, Watched]:
    settings = record(Config, config(folder, epochs=EPOCHS, phases=PHASES))
    parts = build_parts(settings.train, CPU)
    watched = Watched(parts)
    return Learner(settings, Ranks(0, 1, 0), CPU, replace(parts, data=watched)), watched


def finished(learning: Learner) -> dict[str, torch.Tensor]:
    while not learning.finished:
        learning.step(stop=False)
    state = learning.state()
    return {**state["model"], **{f"velocity of {name}": value for name, value in state["optimizer"].items()}}


def test_every_sample_comes_once_per_epoch_and_a_resumed_run_ends_in_the_same_bits(group: None, tmp_path: Path) -> None:
    undisturbed, watched = learner(tmp_path)
    expected = finished(undisturbed)
    counts = [watched.asked[epoch, sample] for epoch in range(EPOCHS) for sample in range(SAMPLES)]
    assert set(counts) == {1}, "each epoch must bring every sample exactly once"
    assert undisturbed.progress == Progress(17 + 21, 17 * 60 + 21 * 90)
    for steps in (16, 17, 18, 30):  # before, at and after the change of size
        first, _ = learner(tmp_path)
        for _ in range(steps):
            first.step(stop=False)
        folder = CheckpointFolder(tmp_path / str(steps), attempt=1)
        name = folder.save(first.state(), progress=first.progress, epoch=first.epochs)
        assert folder.newest is not None and folder.newest.progress == first.progress
        resumed, rest = learner(tmp_path)
        resumed.restore(load_state(tmp_path / str(steps), name, folder.newest.sha256["state.pt"], CPU))
        found = finished(resumed)
        assert resumed.progress == undisturbed.progress
        assert not [key for key in expected if not torch.equal(expected[key], found[key])], f"resumed at {steps} steps"
        assert sum(rest.asked.values()) == undisturbed.progress.samples - first.progress.samples


def test_the_rate_and_the_totals_follow_the_samples(group: None, tmp_path: Path) -> None:
    learning, _ = learner(tmp_path)
    assert learning.course.total_steps() == 38, "17 of 60 samples, then 21 of 90"
    for _ in range(18):
        learning.step(stop=False)
    assert learning.progress == Progress(18, 17 * 60 + 90)
    assert learning.course.total_steps(learning.progress) == 38
    epochs = (17 * 60 + 45) / SAMPLES
    assert learning.last_rate == pytest.approx(TRAIN.optimizer.lr * epochs / TRAIN.schedule.warmup_epochs)


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
