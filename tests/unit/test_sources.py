"""Progress read from what programs write, and passed on as metrics: the same rows however the bytes arrive."""

import json
import os
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.clock import Clock
from tests.unit.verbs import Capsys, Patch
from torusrun.orchestrator.job import gather, relay
from torusrun.orchestrator.job.relay import Relay
from torusrun.orchestrator.run.folder import metrics
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.program import progress as sources
from torusrun.orchestrator.run.program.progress import MOST_NUMBERS, JsonLines, LineSource, PatternSource, Row, row
from torusrun.orchestrator.run.program.what_runs import MetricsSource, Program
from torusrun.orchestrator.run.state.pace import progress
from torusrun.orchestrator.show.screen.detail import Losses

WRITTEN = "written"
LOSS = re.compile(r"(?:step (?P<step>\S+) )?loss=(?P<loss>\S+)")


def never() -> float:
    """A clock that stands: nothing is ever held too long."""
    return 0.0


MAKE: dict[str, Callable[[Path], LineSource]] = {
    "json": lambda folder: JsonLines(folder / WRITTEN, never),
    "pattern": lambda folder: PatternSource(folder / WRITTEN, LOSS, never),
}
JSON = b'{"step": 1, "loss": 0.5}\n{"lr": 1e-3, "x": NaN}\r\n[1]\n{"step": 9\n{"global_step": 7, "train_loss": 2}\n'
LOG = b"start\nstep 3 loss=0.25, more\rloss=nan\nstep x loss=1\n\xff\xfe loss=7\nloss=none\nstep 12/100 loss=2.5e-3"
CONTENT = {"json": JSON, "pattern": LOG}


def rows_of(kind: str, content: bytes, cuts: list[int]) -> list[Row]:
    """The rows of `content`, written in the pieces that `cuts` makes of it and read after each."""
    with tempfile.TemporaryDirectory() as place:
        source = MAKE[kind](Path(place))
        found = source.new_rows()
        at = 0
        for cut in [*sorted(cuts), len(content)]:
            with (Path(place) / WRITTEN).open("ab") as file:
                file.write(content[at:cut])
            at = max(at, cut)
            found += source.new_rows()
        return found + source.new_rows(final=True)


@pytest.mark.parametrize("kind", MAKE)
@settings(max_examples=40)
@given(data=st.data())
def test_a_file_read_in_pieces_gives_the_same_rows(kind: str, data: st.DataObject) -> None:
    content = CONTENT[kind]
    damage = data.draw(st.binary(max_size=3))
    at = data.draw(st.integers(0, len(content)))
    content = content[:at] + damage + content[at + len(damage) :]
    cuts = data.draw(st.lists(st.integers(0, len(content)), max_size=5))
    assert repr(rows_of(kind, content, cuts)) == repr(rows_of(kind, content, []))


@pytest.mark.parametrize("kind", MAKE)
@settings(max_examples=40)
@given(garbage=st.binary(max_size=200))
def test_garbage_hides_no_row_before_it_and_makes_none_that_metrics_may_not_hold(kind: str, garbage: bytes) -> None:
    known, found = rows_of(kind, CONTENT[kind], []), rows_of(kind, CONTENT[kind] + b"\n" + garbage, [])
    assert known and repr(found[: len(known)]) == repr(known)
    for made in found:
        assert metrics.row_of(json.dumps({"event": "step", "attempt": 1, **made}).encode()), made


NAMES = st.text(max_size=120) | st.sampled_from(
    ["step", "total_steps", "samples", "total:samples", "loss", "t", "batch", "epoch", "event", "self"]
)
NUMBERS = st.floats() | st.integers(-(10**20), 10**20) | st.none() | st.booleans() | st.text(max_size=3)


@given(st.dictionaries(NAMES, NUMBERS))
def test_any_flat_object_makes_a_row_within_the_limits(content: dict[str, object]) -> None:
    for found in rows_of("json", json.dumps(content).encode(), []):
        assert metrics.row_of(json.dumps({"event": "step", "attempt": 1, **found}).encode()), found
        assert all(re.fullmatch(r"[A-Za-z0-9_./-]{1,100}", name) for name in found)


def test_json_lines_without_a_step_belong_to_the_step_before_and_a_loss_may_have_other_names() -> None:
    assert rows_of("json", b'{"loss": 0.5}\n', []) == [{"t": 0.0, "loss": 0.5}], "lines are not steps"
    assert rows_of("json", JSON, []) == [
        {"step": 1, "t": 0.0, "loss": 0.5},
        {"step": 1, "t": 0.0, "lr": 1e-3, "x": None},
        {"step": 7, "t": 0.0, "global_step": 7, "train_loss": 2},
    ]
    lines = b'{"step": 1, "val_loss": 9}\n{"step": 2, "train/loss": 1, "eval/loss": 9, "aux_loss": 3}\n'
    assert [found.get("loss") for found in rows_of("json", lines, [])] == [None, 1]


def test_a_huge_line_is_passed_over_a_long_one_cut_and_a_row_has_at_most_a_hundred_numbers() -> None:
    lines = b'{"step": 1, "x": "' + b"y" * 3_000_000 + b'"}\n{"step": 2, "loss": 1}\n'
    assert [found["step"] for found in rows_of("json", lines, [1_500_000])] == [2]
    assert len(row(1, 0.0, {f"n{i}": i for i in range(500)})) == MOST_NUMBERS + 2
    assert not rows_of("pattern", b"x" * 5000 + b"loss=1\n", []) and rows_of("pattern", b"x" * 4000 + b"loss=1\n", [])


def test_the_numbers_of_a_log_are_found_in_progress_bars_too() -> None:
    found = rows_of("pattern", LOG, [])
    assert [(row["step"], row.get("loss")) for row in found] == [(3, 0.25), (3, None), (3, 1), (3, 7), (12, 0.0025)]


@pytest.mark.parametrize("kind", MAKE)
def test_a_file_cut_short_or_replaced_is_read_from_its_start(kind: str, tmp_path: Path) -> None:
    source = MAKE[kind](tmp_path)
    file = tmp_path / WRITTEN
    file.write_bytes(CONTENT[kind])
    first = source.new_rows(final=True)
    assert first and not source.new_rows(final=True)
    file.write_bytes(b"")
    assert not source.new_rows(final=True)
    file.write_bytes(CONTENT[kind])
    again = source.new_rows(final=True)
    assert [found.get("loss") for found in again] == [found.get("loss") for found in first]
    (tmp_path / "new").write_bytes(CONTENT[kind])
    (tmp_path / "new").replace(file)
    assert len(source.new_rows(final=True)) == len(first)


@pytest.mark.parametrize("kind", MAKE)
def test_what_is_no_file_has_no_rows(kind: str, tmp_path: Path) -> None:
    source = MAKE[kind](tmp_path)
    assert source.new_rows() == []
    os.mkfifo(tmp_path / WRITTEN)
    assert source.new_rows(final=True) == []


# What a program says of its progress becomes the metrics of its run.


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


def test_a_pattern_that_never_matches_is_said_once(run: RunFolder, capsys: Capsys) -> None:
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


def test_a_file_that_cannot_be_read_in_time_is_given_up(run: RunFolder, monkeypatch: Patch) -> None:
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


def test_a_pattern_that_never_ends_is_given_up(run: RunFolder, monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.setattr(relay, "LONGEST_S", 1.0)  # for the other source, on a busy machine
    attempt = run.attempt(2)
    attempt.rank_log(0).write_text("a" * 60 + "b\n")
    reading = of(run, attempt, r"(?P<loss>(a+)+)$")
    attempt.metrics.write_text(json.dumps({"step": 1, "loss": 1.0}) + "\n")
    reading.pass_on()
    reading.pass_on()
    assert "PatternSource took over 1 s" in capsys.readouterr().err
    assert len(metrics.read(run.metrics)) == 1, "the other source is still read"
