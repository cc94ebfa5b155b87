"""Progress read from what programs write: the same rows however the bytes arrive, and none made of garbage."""

import json
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torusrun.orchestrator.run.folder import metrics
from torusrun.orchestrator.run.program.progress import MOST_NUMBERS, JsonLines, LineSource, PatternSource, Row, row

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


def test_json_lines_without_a_step_belong_to_the_step_before() -> None:
    assert rows_of("json", b'{"loss": 0.5}\n', []) == [{"t": 0.0, "loss": 0.5}], "lines are not steps"
    assert rows_of("json", JSON, []) == [
        {"step": 1, "t": 0.0, "loss": 0.5},
        {"step": 1, "t": 0.0, "lr": 1e-3, "x": None},
        {"step": 7, "t": 0.0, "global_step": 7, "train_loss": 2},
    ]


def test_the_loss_is_found_under_other_names_but_not_an_evaluations() -> None:
    lines = b'{"step": 1, "val_loss": 9}\n{"step": 2, "train/loss": 1, "eval/loss": 9, "aux_loss": 3}\n'
    assert [found.get("loss") for found in rows_of("json", lines, [])] == [None, 1]


def test_a_huge_line_is_passed_over() -> None:
    lines = b'{"step": 1, "x": "' + b"y" * 3_000_000 + b'"}\n{"step": 2, "loss": 1}\n'
    assert [found["step"] for found in rows_of("json", lines, [1_500_000])] == [2]


def test_a_row_has_at_most_a_hundred_numbers() -> None:
    assert len(row(1, 0.0, {f"n{i}": i for i in range(500)})) == MOST_NUMBERS + 2


def test_the_numbers_of_a_log_are_found_in_progress_bars_too() -> None:
    found = rows_of("pattern", LOG, [])
    assert [(row["step"], row.get("loss")) for row in found] == [(3, 0.25), (3, None), (3, 1), (3, 7), (12, 0.0025)]


def test_a_long_line_of_a_log_is_cut() -> None:
    assert not rows_of("pattern", b"x" * 5000 + b"loss=1\n", []) and rows_of("pattern", b"x" * 4000 + b"loss=1\n", [])


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
