"""What a training tells of itself: the trace, MLPerf's log, and samples that it could not use."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from phased import CPU, SAMPLES, STEPS, configured, learner
from phased import group as group
from training_runs import read_lines

from torusrun.training.collectives import all_reduce
from torusrun.training.config import Ranks
from torusrun.training.recipe.protocols import DataSet
from torusrun.training.reporting.reporter import Problems, Reporter


def test_the_trace_has_every_step_as_it_was(group: None, tmp_path: Path) -> None:
    (tmp_path / "attempts/1").mkdir(parents=True)
    learning, watched = learner(tmp_path, trace=True)
    decays: list[float] = []
    moved = learning._optimizer.before_step  # type: ignore[attr-defined]
    learning._optimizer.before_step = lambda moment, decay: (decays.append(decay), moved(moment, decay))  # type: ignore[attr-defined]
    reporter = Reporter(configured(tmp_path, trace=True), Ranks(0, 1, 0), learning)
    reporter.start(None)
    rates = []
    while not learning.finished:
        learning.step(stop=False)
        rates.append(learning.last_rate)
    reporter.end()
    head, *lines = read_lines(tmp_path / "attempts/1/trace.jsonl")
    (bucket,) = head["buckets"]
    parameters = len(list(learning.model.parameters()))
    assert bucket["gradients"] == parameters and bucket["all_reduce"] == "torus"
    assert bucket["bytes"] >= 4 * learning.parameters
    assert head["norm"]["statistics"] == "moving" and head["optimizer"]["name"] == "sgd"
    samples = 0
    for number, line in enumerate(lines):
        phase = sum(number >= sum(STEPS[: n + 1]) for n in range(3))
        batch, size = (60, 8) if phase == 0 else (90, 12 if phase < 3 else 8)
        assert line == {
            "step": number + 1, "samples": samples, "epoch": samples / SAMPLES, "phase": phase, "lr": rates[number],
            "weight_decay": decays[number], "momentum": 0.9, "batch": batch, "size": size, "test_size": None,
            "area": [0.08, 1.0], "aspect": [0.75, 4 / 3], "augment": phase == 0, "rectangular": False,
            "test_margin": 1.14, "world": 1,
        }  # fmt: skip
        samples += batch
    assert decays == [1e-4] * 17 + [0.01] * 21 and len(lines) == 38


def test_a_hybrid_all_reduce_is_shown_with_the_method_of_each_bucket(group: None) -> None:
    hybrid = all_reduce.build("hybrid", (1,))
    assert [hybrid.name(torch.empty(n)) for n in (2**18 - 1, 2**18)] == ["hierarchical", "flat"]


class Corrupt(DataSet):
    """Of a data set: what it could not read."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def problems(self) -> list[str]:
        return self.found


def test_corrupt_samples_are_named_once(group: None, capsys: pytest.CaptureFixture[str]) -> None:
    data = Corrupt()
    problems = Problems(data, CPU)
    assert problems.tell() == 0
    data.found += ["a/1.jpg cannot be read", "b/2.jpg cannot be read"]
    assert problems.tell() == 2
    data.found.append("c/3.jpg cannot be read")
    assert problems.tell() == 3
    assert capsys.readouterr().err.splitlines() == [f"training: {found}" for found in data.found]
