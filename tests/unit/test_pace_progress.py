"""Progress from metrics that any program may have written: what is missing is None, and an ETA is never made up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torusrun.orchestrator.run.state.pace import progress, step_s

NOW_S = 10_000.0


def steps(*numbers: int, every_s: float = 2.0, **values: Any) -> list[dict[str, Any]]:
    """Rows of steps of attempt 1, the newest one recorded just now."""
    return [
        {"event": "step", "attempt": 1, "step": n, "t": NOW_S - every_s * (numbers[-1] - n), **values} for n in numbers
    ]


def test_the_time_that_is_left_follows_the_steps_of_the_attempt() -> None:
    """Also where not every step is recorded, and one took longer."""
    assert progress(steps(10, 20, 30, total_steps=50), 1, None, NOW_S).eta_s == pytest.approx(40)
    assert progress(steps(10, 30, total_steps=50), 1, None, NOW_S + 1).eta_s == pytest.approx(39)
    rows = [{**steps(1)[0], "t": NOW_S - 20}, {**steps(2)[0], "t": NOW_S - 19}, *steps(11, total_steps=21)]
    assert progress(rows, 1, None, NOW_S).eta_s == pytest.approx(20)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        steps(10),
        steps(10, total_steps=50),
        steps(10, 20),
        steps(10, 50, total_steps=50),
        steps(10, 20, total_steps=50, attempt=2),
        steps(10, 20, total_steps=50, t=None),
        steps(10, 20, total_steps=50, every_s=0.0),
        steps(20, 10, total_steps=50),
        [{**row, "t": row["t"] - 5000} for row in steps(10, 20, 30, total_steps=50)],
        [*steps(10, 20, total_steps=50), {"event": "stop", "attempt": 1, "step": 20, "total_steps": 50}],
    ],
    ids=[
        "none",
        "one, no total",
        "one",
        "no total",
        "done",
        "another's",
        "no times",
        "no time",
        "back",
        "paused",
        "stopped",
    ],
)
def test_without_a_pace_or_a_number_of_steps_there_is_no_eta(rows: list[dict[str, Any]]) -> None:
    assert progress(rows, 1, None, NOW_S).eta_s is None


def test_a_run_that_does_not_run_has_no_eta_and_no_pause() -> None:
    found = progress(steps(10, 20, total_steps=50), 1, None, None)
    assert found.eta_s is None and found.pace.pause == "" and (found.step, found.total_steps) == (20, 50)


def test_the_newest_values_wherever_they_stand() -> None:
    rows = [
        {"event": "start", "attempt": 1, "step": 0, "total_steps": 50},
        *steps(1, 2, loss=0.5, images_per_s=8.0),
        {"event": "eval", "attempt": 1, "accuracy": 0.9},
        *steps(3, loss=None),
    ]
    found = progress(rows, 1, None, NOW_S)
    assert (found.step, found.total_steps, found.loss, found.accuracy, found.images_per_s) == (3, 50, 0.5, 0.9, 8.0)
    assert found.newest_result == "accuracy"
    assert progress([*rows, *steps(4, loss=0.4)], 1, None, NOW_S).newest_result == "loss"
    assert progress(steps(1, 2, reward=3), 1, None, NOW_S).newest_result == ""


ROWS = st.lists(
    st.fixed_dictionaries(
        {"event": st.sampled_from(["start", "step", "eval", "done", "mine"])},
        optional={
            "step": st.integers(0, 10**14),
            "attempt": st.integers(0, 3),
            "t": st.none() | st.floats(-1e14, 1e14),
            "total_steps": st.integers(0, 10**14),
            "loss": st.none() | st.floats(-1e14, 1e14),
        },
    ).filter(lambda row: row["event"] != "step" or {"step", "attempt"} <= row.keys()),
    max_size=12,
)


@given(ROWS, st.none() | st.floats(-1e14, 1e14))
def test_whatever_rows_there_are_no_time_is_negative(rows: list[dict[str, Any]], started_s: float | None) -> None:
    found = progress(rows, 1, started_s, NOW_S)
    assert found.eta_s is None or found.eta_s >= 0
    assert (per_step_s := step_s(rows, 1)) is None or per_step_s > 0
