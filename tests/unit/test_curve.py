"""Curves with blocks and in ASCII, and the losses that are read as they are written."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from torusrun.orchestrator.base.shown.curve import ASCII, BLOCKS, Curve
from torusrun.orchestrator.show.screen import detail as module
from torusrun.orchestrator.show.screen.detail import Losses
from torusrun.training.reporting.metrics import Metrics

Points = list[tuple[float, float]]


def area(points: Points, width: int, height: int, *, blocks: bool = True) -> list[str]:
    return Curve(points).area(width, height, BLOCKS if blocks else ASCII)


def test_a_loss_in_blocks_and_in_ascii() -> None:
    points = [(float(n), 8.0 - n) for n in range(8)]
    assert area(points, 8, 1) == ["█▇▆▅▄▃▂▁"]
    assert area(points, 8, 2) == ["█▆▄▂", "████▇▅▃▁"]
    assert area([(0.0, 2.0), (1.0, 1.0)], 8, 1, blocks=False) == ["#."]
    assert area([(1.0, 0.5), (2.0, 0.5)], 8, 2) == ["", "▁▁"]
    assert area([(0.0, 1.0), (1.0, 3.0), (2.0, 0.0), (3.0, 0.0)], 2, 1) == ["█▁"]


@given(
    st.lists(st.tuples(st.integers(0, 100), st.floats(-1e14, 1e14)), min_size=1, max_size=50),
    st.integers(1, 30), st.integers(1, 8), st.booleans(),
)  # fmt: skip
def test_every_curve_fits_and_ends_on_its_last_line(
    points: list[tuple[int, float]], width: int, height: int, blocks: bool
) -> None:
    lines = area(sorted((float(x), y) for x, y in points), width, height, blocks=blocks)
    assert len(lines) == height and all(len(line) <= width for line in lines)
    assert " " not in lines[-1] and len(lines[-1]) == min(width, len(points))
    assert blocks or all(line.isascii() for line in lines)


def test_a_frame_has_the_ends_of_both_axes() -> None:
    curve = Curve([(4.0, 1.0), (16.0, 100.0)], "{:.0f} GPUs".format, "{:g} ms".format)
    assert curve.framed(["█", "██"]) == ["   100 ms █", "     1 ms ██"]
    assert curve.foot("", 21) == "          4 GPUs        16 GPUs"


def test_a_resumed_run_replaces_what_it_repeats(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    losses, metrics = Losses(path), Metrics(path, 1)
    assert losses.read() == []
    for step in (1, 2, 3):
        metrics.write("step", step=step, loss=1.0)
    metrics.write("eval", step=3, accuracy=0.5)
    metrics.write("step", step=4, loss=float("nan"))
    assert losses.read() == [(1.0, 1.0), (2.0, 1.0), (3.0, 1.0)]
    Metrics(path, 2).write("step", step=2, loss=0.5)
    with open(path, "a") as file:
        file.write('no JSON\n{"event": "step", "step": 3, "att')
    assert losses.read() == [(1.0, 1.0), (2.0, 0.5)]


def test_many_points_become_fewer(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(module, "MOST_POINTS", 8)
    metrics = Metrics(tmp_path / "metrics.jsonl", 1)
    for step in range(1, 101):
        metrics.write("step", step=step, loss=2.0)
    found = Losses(tmp_path / "metrics.jsonl").read()
    assert 4 <= len(found) <= 8 and {loss for _, loss in found} == {2.0} and found[-1][0] >= 96
