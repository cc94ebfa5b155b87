"""The points of a report's curves: which rows count, how many are shown, and the numbers along the axes."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from torusrun.orchestrator.show.page.charts import series, thinned
from torusrun.orchestrator.show.page.drawing import HEIGHT, MOST_TICKS, WIDTH, Chart, ChartLine, ticks, written

VALUES = st.floats(-1e15, 1e15)


def row(attempt: int, step: int, event: str = "step", **more: Any) -> dict[str, Any]:
    return {"t": 100.0 * attempt + step, "attempt": attempt, "event": event, "step": step, "samples": step * 64, **more}


def test_steps_that_a_later_attempt_repeats_are_left_out() -> None:
    first = [row(1, step, loss=1.0) for step in (5, 10, 15)]
    first.insert(2, row(1, 10, "eval", accuracy=0.5))
    first.append(row(1, 15, "eval", accuracy=0.6))
    second = [row(2, 10, "start"), row(2, 15, loss=2.0), row(2, 15, "eval", accuracy=0.7)]
    found = series([*first, *second, row(2, 15, "done", accuracy=0.7)])
    assert [(each["step"], each["attempt"]) for each in found.steps] == [(5, 1), (10, 1), (15, 2)]
    assert [(each["step"], each["attempt"]) for each in found.evaluations] == [(10, 1), (15, 2)]
    assert found.unit == "samples" and found.points(found.steps, "loss") == [(320, 1.0), (640, 1.0), (960, 2.0)]


def test_a_program_without_samples_counts_steps() -> None:
    found = series([{"t": 1.0, "event": "step", "step": 3, "attempt": 1, "loss": 0.5}])
    assert found.unit == "steps" and found.points(found.steps, "loss") == [(3, 0.5)]


@given(st.lists(st.tuples(VALUES, VALUES), max_size=80), st.integers(1, 9))
def test_many_points_become_means_within_a_band(points: list[tuple[float, float]], columns: int) -> None:
    found = thinned(sorted(points), columns)
    if len(points) <= 2 * columns:
        assert found.points == sorted(points) and not found.band
        return
    assert 1 <= len(found.points) == len(found.band) <= columns
    values = [y for _, y in points]
    assert min(low for _, low, _ in found.band) == min(values)
    assert max(high for *_, high in found.band) == max(values)


@given(VALUES, st.floats(1e-9, 1e15))
def test_ticks_are_few_and_within_their_axis(low: float, length: float) -> None:
    high = low + length
    found = ticks(low, high)
    room = 1e-6 * max(abs(low), abs(high), length)
    assert len(found) <= MOST_TICKS and all(low - room <= value <= high + room for value in found)
    assert all(map(written(found), found))


def test_ticks_are_round_and_written_alike() -> None:
    for low, high, shown in (
        (0.0, 34_000.0, ["0", "10k", "20k", "30k"]),
        (0.13, 2.36, ["0.5", "1.0", "1.5", "2.0"]),
        (0.0, 0.1, ["0.000", "0.025", "0.050", "0.075", "0.100"]),
        (0.0, 2e-5, ["0", "5e-06", "1e-05", "1.5e-05", "2e-05"]),
        (0.0, 1.3e6, ["0", "0.5M", "1M"]),
    ):
        found = ticks(low, high)
        assert [*map(written(found), found)] == shown


@given(st.lists(st.lists(st.tuples(st.floats(0, 1e15), VALUES), min_size=1, max_size=5), min_size=1, max_size=4))
def test_all_of_a_chart_is_within_its_frame(groups: list[list[tuple[float, float]]]) -> None:
    lines = [ChartLine(name, group, number) for number, (name, group) in enumerate(zip("ABCD", groups, strict=False))]
    drawn = ElementTree.fromstring(Chart("Loss", "samples", lines).svg)
    assert len(drawn.findall("polyline")) == len(lines)
    for element in drawn.iter("polyline"):
        for x, y in (map(float, point.split(",")) for point in element.get("points", "").split()):
            assert 0 <= x <= WIDTH and 0 <= y <= HEIGHT
    heights = sorted(float(text.get("y", "")) for text in drawn.iter("text") if "name" in text.get("class", ""))
    assert all(later - one > 11 for one, later in zip(heights, heights[1:], strict=False)), "names overlap"
    assert all(0 < height < HEIGHT for height in heights)
