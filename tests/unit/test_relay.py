"""What a program says of its progress becomes the metrics of its run."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.clock import Clock
from torusrun.orchestrator.job import gather, relay
from torusrun.orchestrator.job.relay import Relay
from torusrun.orchestrator.run.folder import metrics
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.program import progress as sources
from torusrun.orchestrator.run.program.what_runs import MetricsSource, Program
from torusrun.orchestrator.run.state.pace import progress
from torusrun.orchestrator.show.screen.detail import Losses


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path)
    run.attempt(2).logs.mkdir(parents=True)
    return run


def of(run: RunFolder, attempt: Attempt, pattern: str = "", clock: Callable[[], float] = time.time) -> Relay:
    return Relay(Program(("true",), metrics=MetricsSource(str(attempt.metrics), pattern)), run, attempt, clock)


def test_json_lines_and_a_pattern_become_steps_of_the_attempt(run: RunFolder) -> None:
    attempt = run.attempt(2)
    reading = of(run, attempt, r"step=(?P<step>\d+) loss=(?P<loss>\S+)")
    attempt.metrics.write_text(json.dumps({"step": 3, "loss": 0.5, "event": "mine"}) + "\n")
    attempt.rank_log(0).write_text("hello\nstep=4 loss=0.25\nstep=5 lo")
    reading.pass_on()
    with attempt.rank_log(0).open("a") as log:
        log.write("ss=0.125")
    reading.pass_on(final=True)
    rows = metrics.read(run.metrics)
    assert [(row["step"], row["loss"]) for row in rows] == [(3, 0.5), (4, 0.25), (5, 0.125)]
    assert {(row["event"], row["attempt"]) for row in rows} == {("step", 2)}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.53,", 0.53), ("10/100", 10), ("1e-3", 1e-3), ("-2", -2), ("nan", None), ("2,400", 2400),
        ("12,345,678.5", 12345678.5),
        ("2_400", 2400), ("1'000'000", 1000000), ("2,400,", 2400), ("-1,024", -1024),
        ("1.2k", 1200.0), ("10k/50k", 10000), ("3M", 3000000), ("9.46GiB(64%)", 9.46), ("5m", 5), ("1.5Mb", 1.5),
        ("2,35", None), ("0,123", None), ("1.234,56", None), ("1.234.567", None), ("2,4000", None), ("1,234_567", None),
    ],
)  # fmt: skip
def test_numbers_are_read_as_programs_write_them(run: RunFolder, text: str, value: float | None) -> None:
    attempt = run.attempt(2)
    attempt.rank_log(0).write_text(f"step=7 loss: {text}\n")
    of(run, attempt, r"step=(?P<step>\d+) loss: (?P<loss>\S+)").pass_on(final=True)
    (row,) = metrics.read(run.metrics)
    assert (row["step"], row.get("loss")) == (7, value)


def test_a_pattern_matches_a_line_with_colours(run: RunFolder) -> None:
    attempt = run.attempt(2)
    attempt.rank_log(0).write_text(
        "[rank0]:[titan] \x1b[31mstep: \x1b[1m 2,400  \x1b[32mloss:  7.9000\x1b(B\x1b[m"
        "  \x1b]0;title\x07tps: 7,282\x1b[39m\n"
    )
    of(run, attempt, r"step: +(?P<step>\S+) +loss: +(?P<loss>[\d.]+) +tps: (?P<tps>\S+)").pass_on(final=True)
    (row,) = metrics.read(run.metrics)
    assert (row["step"], row["loss"], row["tps"]) == (2400, 7.9, 7282)


def test_a_pattern_that_never_matches_is_said_once(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    attempt, clock = run.attempt(2), Clock()
    attempt.rank_log(0).write_text("iteration 1 lm loss 2.5\niteration 2 lm loss 2.4\n")
    reading = of(run, attempt, r"step=(?P<step>\d+)", clock.time)
    reading.pass_on()
    assert capsys.readouterr().err == ""
    clock.sleep(61)
    for _ in range(2):
        reading.pass_on()
    said = "none of the 2 lines of rank 0, of which the newest is 'iteration 2 lm loss 2.4'"
    assert capsys.readouterr().err == f"torusrun: metrics.pattern matches {said}\n"
    reading = of(run, attempt, r"lm loss (?P<loss>\S+)", clock.time)
    reading.pass_on()
    clock.sleep(61)
    reading.pass_on()
    assert capsys.readouterr().err == ""


def test_a_line_with_the_time_of_a_checkpoint_is_a_checkpoint(run: RunFolder) -> None:
    attempt = run.attempt(2)
    attempt.metrics.write_text(json.dumps({"step": 3}) + "\n" + json.dumps({"step": 3, "checkpoint_s": 0.5}) + "\n")
    of(run, attempt).pass_on(final=True)
    rows = [(row["event"], row["step"], row.get("seconds")) for row in metrics.read(run.metrics)]
    assert rows == [("step", 3, None), ("checkpoint", 3, 0.5)], "the account counts it as one"


def test_matches_of_a_pattern_without_a_step_are_not_counted_as_steps(run: RunFolder) -> None:
    attempt = run.attempt(2)
    attempt.rank_log(0).write_text("loss=0.5\nloss=0.25\n")
    of(run, attempt, r"loss=(?P<loss>\S+)").pass_on(final=True)
    at = progress(metrics.read(run.metrics), 2, None, None)
    assert (at.step, at.loss) == (None, 0.25)
    assert Losses(run.metrics).read() == [], "a curve is over steps"
    assert gather.newest_step(run, attempt) is None


def test_a_file_that_cannot_be_read_in_time_is_given_up(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a network file system that hangs: the interruption is not taken for an error of the file."""
    monkeypatch.setattr(relay, "LONGEST_S", 0.2)
    monkeypatch.setattr(sources.os, "pread", lambda descriptor, size, at: time.sleep(60))
    attempt = run.attempt(2)
    attempt.metrics.write_text(json.dumps({"step": 1}) + "\n")
    reading = of(run, attempt)
    reading.pass_on()
    monkeypatch.undo()
    reading.pass_on(final=True)
    assert metrics.read(run.metrics) == [], "it is not read again"


def test_a_pattern_that_never_ends_is_given_up(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(relay, "LONGEST_S", 1.0)  # for the other source, on a busy machine
    attempt = run.attempt(2)
    attempt.rank_log(0).write_text("a" * 60 + "b\n")
    reading = of(run, attempt, r"(?P<loss>(a+)+)$")
    attempt.metrics.write_text(json.dumps({"step": 1, "loss": 1.0}) + "\n")
    reading.pass_on()
    reading.pass_on()
    assert "PatternSource took over 1 s" in capsys.readouterr().err
    assert len(metrics.read(run.metrics)) == 1, "the other source is still read"
