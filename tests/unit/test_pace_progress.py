"""Progress from metrics that any program may have written: what is missing is None, and an ETA is never made up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torusrun.orchestrator.run.state.pace import FIRST_STEP_S, duration, pace, progress, step_s

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
        [], steps(10), steps(10, total_steps=50), steps(10, 20), steps(10, 50, total_steps=50),
        steps(10, 20, total_steps=50, attempt=2), steps(10, 20, total_steps=50, t=None),
        steps(10, 20, total_steps=50, every_s=0.0), steps(20, 10, total_steps=50),
        [{**row, "t": row["t"] - 5000} for row in steps(10, 20, 30, total_steps=50)],
        [*steps(10, 20, total_steps=50), {"event": "stop", "attempt": 1, "step": 20, "total_steps": 50}],
    ],
    ids=[
        "none", "one, no total", "one", "no total", "done", "another's", "no times", "no time", "back", "paused",
        "stopped",
    ],
)  # fmt: skip
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
            "step": st.integers(0, 10**14), "attempt": st.integers(0, 3), "t": st.none() | st.floats(-1e14, 1e14),
            "total_steps": st.integers(0, 10**14), "loss": st.none() | st.floats(-1e14, 1e14),
        },
    ).filter(lambda row: row["event"] != "step" or {"step", "attempt"} <= row.keys()),
    max_size=12,
)  # fmt: skip


@given(ROWS, st.none() | st.floats(-1e14, 1e14))
def test_whatever_rows_there_are_no_time_is_negative(rows: list[dict[str, Any]], started_s: float | None) -> None:
    found = progress(rows, 1, started_s, NOW_S)
    assert found.eta_s is None or found.eta_s >= 0
    assert (per_step_s := step_s(rows, 1)) is None or per_step_s > 0


# How fast a run goes by its metrics, and when a pause is worth a word.


def ago(*ages_s: float, attempt: int = 1) -> list[dict[str, Any]]:
    """Rows of steps that were recorded so long before now."""
    return [
        {"event": "step", "attempt": attempt, "step": n, "total_steps": 99, "t": NOW_S - age_s}
        for n, age_s in enumerate(ages_s, 1)
    ]


@pytest.mark.parametrize(
    ("rows", "started_ago_s", "says"),
    [
        (ago(240.6, 240.4, 240.2, 240.0), 300, "no step for 4 min, usual 0.2 s"),
        (ago(9.6, 9.4, 9.2), 300, ""),
        (ago(130, 80, 30), 300, ""),
        (ago(700, 640, 580), 800, ""),
        (ago(730, 670, 610), 800, "no step for 10 min, usual 60 s"),
        (ago(61), 300, "no step for 61 s"),
        (ago(59), 300, ""),
        ([], 360, "no step yet, started 6 min ago"),
        ([], 59, ""),
        ([], None, ""),
        (ago(3, 2, 1, attempt=2), 360, "no step yet, started 6 min ago"),
        ([{"event": "step", "attempt": 1, "step": 1}], 360, "no step yet, started 6 min ago"),
        ([*ago(240.4, 240.2, 240), {"event": "eval", "attempt": 1, "t": NOW_S}], 300, "no step for 4 min, usual 0.2"),
        ([*ago(240.4, 240.2, 240), {"event": "stop", "attempt": 1, "t": NOW_S}], 300, ""),
        ([*ago(240.4, 240.2), {**ago(240.0)[0], "step": 99}], 300, ""),
    ],
)  # fmt: skip
def test_only_an_unusually_long_pause_is_reported(
    rows: list[dict[str, Any]], started_ago_s: float | None, says: str
) -> None:
    started_s = None if started_ago_s is None else NOW_S - started_ago_s
    assert pace(rows, 1, started_s, NOW_S).pause.removesuffix(" s") == says.removesuffix(" s")


def test_the_usual_time_is_the_median_and_an_evaluation_does_not_move_it() -> None:
    found = pace(ago(40.9, 40.7, 40.5, 40.3, 0.3, 0.1), 1, None, NOW_S)
    assert found.usual_s == pytest.approx(0.2) and found.age_s == pytest.approx(0.1)


TIMES = st.one_of(st.none(), st.floats(-1e6, 1e6))


@given(st.lists(TIMES, max_size=8), TIMES)
def test_whatever_the_clocks_of_hosts_say_no_age_is_negative(
    ahead_s: list[float | None], started_s: float | None
) -> None:
    rows = [{**row, "t": None if t is None else NOW_S + t} for row, t in zip(ago(*[0] * 8), ahead_s, strict=False)]
    found = pace(rows, 1, None if started_s is None else NOW_S + started_s, NOW_S)
    assert (found.age_s or 0) >= 0 and (found.usual_s or 0) >= 0 and "-" not in found.pause
    if not found.pause and found.age_s and found.usual_s is None:
        assert found.age_s <= FIRST_STEP_S


@pytest.mark.parametrize(
    ("seconds", "says"), [(0.0, "0 s"), (0.21, "0.21 s"), (40.4, "40 s"), (360, "6 min"), (12_600, "3.5 h")]
)  # fmt: skip
def test_durations_in_words(seconds: float, says: str) -> None:
    assert duration(seconds) == says
