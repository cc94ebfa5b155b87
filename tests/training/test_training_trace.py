"""What a training tells of itself: the trace, MLPerf's log, and samples that it could not use."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from phased import CPU, EPOCHS, SAMPLES, STEPS, configured, learner
from phased import group as group
from training_runs import read_lines

from torusrun.training.collectives import all_reduce
from torusrun.training.config import Ranks
from torusrun.training.recipe.protocols import DataSet
from torusrun.training.recipe.train import EvaluateKeys, LarsKeys, OptimizerKeys, PhaseKeys, Train
from torusrun.training.reporting.exits import EXIT_DONE
from torusrun.training.reporting.mllog import MLLog, hyper_parameters
from torusrun.training.reporting.output import lossy
from torusrun.training.reporting.reporter import Problems, Reporter
from torusrun.training.schedule import Course


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
    reporter.end(EXIT_DONE)
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


def test_the_log_of_mlperf(group: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    keys = {"mlperf_log": True, "optimizer": OptimizerKeys("lars", lr=2.0, lars=LarsKeys(form="foreach"))}
    learning, _ = learner(tmp_path, evaluate=EvaluateKeys(every=2, first=2), **keys)
    reporter = Reporter(configured(tmp_path, **keys), Ranks(0, 1, 0), learning)
    reporter.start(None)
    while not learning.finished:
        learning.step(stop=False)
        reporter.epochs()
        if learning.course.evaluates(learning.before, learning.progress):
            found = reporter.evaluation()
    reporter.end(EXIT_DONE)
    lines = [line.removeprefix(":::MLLOG ") for line in capfd.readouterr().out.splitlines()]
    events = [json.loads(line) for line in lines]
    assert all(list(e) == ["namespace", "time_ms", "event_type", "key", "value", "metadata"] for e in events)
    given = {e["key"]: e["value"] for e in events if e["event_type"] == "POINT_IN_TIME"}
    assert given["global_batch_size"] == 60 and given["opt_name"] == "lars" and given["train_samples"] == SAMPLES
    assert given["lars_opt_base_learning_rate"] == 2.0 and given["eval_accuracy"] == found.model.accuracy
    course = [(e["key"], e["metadata"].get("epoch_num")) for e in events if e["event_type"] != "POINT_IN_TIME"]
    assert course == [
        ("run_start", None), ("epoch_start", 1), ("epoch_stop", 1), ("epoch_start", 2), ("epoch_stop", 2),
        ("eval_start", 2), ("eval_stop", 2), ("run_stop", None),
    ]  # fmt: skip
    assert events[-1]["metadata"] == {"status": "success"}


def test_the_log_of_mlperf_pairs_the_epochs_of_a_batch_that_is_longer(
    group: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    keys = {"mlperf_log": True, "phases": (PhaseKeys(EPOCHS, batch=2 * SAMPLES + 3),)}
    for _ in range(2):
        learning, _ = learner(tmp_path, **keys)
        reporter = Reporter(configured(tmp_path, **keys), Ranks(0, 1, 0), learning)
        reporter.start(None)
        learning.step(stop=False)
        reporter.epochs()
        reporter.evaluation()
        reporter.start("step-00000001")  # an attempt that goes on from a checkpoint of this step
        reporter.epochs()
    told = [json.loads(line[9:]) for line in capfd.readouterr().out.splitlines()]
    assert {event["metadata"]["epoch_num"] for event in told if event["key"].startswith("eval_a")} == {EPOCHS}
    epochs = [event for event in told if event["key"].startswith("epoch_")]
    once = [("epoch_start", 1), ("epoch_stop", 1), ("epoch_start", 2), ("epoch_stop", 2)]
    assert [(event["key"], event["metadata"]["epoch_num"]) for event in epochs] == once * 4


def test_the_log_of_mlperf_has_the_rates_of_the_phases() -> None:
    phases = (PhaseKeys(0.5, lr=(0.0, 3.0), batch=60), PhaseKeys(2, lr=(3.0, 0.0), reach=3.5, weight_decay=0.0))
    train = Train(epochs=2, phases=phases)
    told = dict(hyper_parameters(train, Course(train, SAMPLES), 360))
    assert told["opt_base_learning_rate"] == 3.0 and told["opt_learning_rate_warmup_epochs"] == 0.5
    assert told["opt_end_learning_rate"] == 1.5
    constant = replace(train, phases=(PhaseKeys(2, lr=(3.0,)),))
    told = dict(hyper_parameters(constant, Course(constant, SAMPLES), 360))
    assert told["opt_learning_rate_warmup_epochs"] == 0.0 and told["opt_end_learning_rate"] == 3.0


def test_the_log_of_mlperf_has_no_numbers_that_json_has_not(capfd: pytest.CaptureFixture[str]) -> None:
    MLLog(active=True).event("eval_accuracy", float("nan"))
    assert '"value": null' in capfd.readouterr().out


def test_a_full_disk_costs_lines_of_the_log_of_mlperf(capfd: pytest.CaptureFixture[str]) -> None:
    log = MLLog(active=True)
    with Path("/dev/full").open("w") as full, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", lossy(full))
        log.start("run_start")
    log.stop("run_stop")
    said = capfd.readouterr().out
    assert "run_stop" in said and "run_start" not in said


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
