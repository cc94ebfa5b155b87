"""How fast a run goes by its metrics, and when a pause is worth a word."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torusrun.orchestrator.run.state.pace import FIRST_STEP_S, duration, pace

NOW_S = 10_000.0


def steps(*ages_s: float, attempt: int = 1) -> list[dict[str, Any]]:
    """Rows of steps that were recorded so long before now."""
    return [
        {"event": "step", "attempt": attempt, "step": n, "total_steps": 99, "t": NOW_S - age_s}
        for n, age_s in enumerate(ages_s, 1)
    ]


@pytest.mark.parametrize(
    ("rows", "started_ago_s", "says"),
    [
        (steps(240.6, 240.4, 240.2, 240.0), 300, "no step for 4 min, usual 0.2 s"),
        (steps(9.6, 9.4, 9.2), 300, ""),
        (steps(130, 80, 30), 300, ""),
        (steps(700, 640, 580), 800, ""),
        (steps(730, 670, 610), 800, "no step for 10 min, usual 60 s"),
        (steps(61), 300, "no step for 61 s"),
        (steps(59), 300, ""),
        ([], 360, "no step yet, started 6 min ago"),
        ([], 59, ""),
        ([], None, ""),
        (steps(3, 2, 1, attempt=2), 360, "no step yet, started 6 min ago"),
        ([{"event": "step", "attempt": 1, "step": 1}], 360, "no step yet, started 6 min ago"),
        ([*steps(240.4, 240.2, 240), {"event": "eval", "attempt": 1, "t": NOW_S}], 300, "no step for 4 min, usual 0.2"),
        ([*steps(240.4, 240.2, 240), {"event": "stop", "attempt": 1, "t": NOW_S}], 300, ""),
        ([*steps(240.4, 240.2), {**steps(240.0)[0], "step": 99}], 300, ""),
    ],
)  # fmt: skip
def test_only_an_unusually_long_pause_is_reported(
    rows: list[dict[str, Any]], started_ago_s: float | None, says: str
) -> None:
    started_s = None if started_ago_s is None else NOW_S - started_ago_s
    assert pace(rows, 1, started_s, NOW_S).pause.removesuffix(" s") == says.removesuffix(" s")


def test_the_usual_time_is_the_median_and_an_evaluation_does_not_move_it() -> None:
    found = pace(steps(40.9, 40.7, 40.5, 40.3, 0.3, 0.1), 1, None, NOW_S)
    assert found.usual_s == pytest.approx(0.2) and found.age_s == pytest.approx(0.1)


TIMES = st.one_of(st.none(), st.floats(-1e6, 1e6))


@given(st.lists(TIMES, max_size=8), TIMES)
def test_whatever_the_clocks_of_hosts_say_no_age_is_negative(
    ahead_s: list[float | None], started_s: float | None
) -> None:
    rows = [{**row, "t": None if t is None else NOW_S + t} for row, t in zip(steps(*[0] * 8), ahead_s, strict=False)]
    found = pace(rows, 1, None if started_s is None else NOW_S + started_s, NOW_S)
    assert (found.age_s or 0) >= 0 and (found.usual_s or 0) >= 0 and "-" not in found.pause
    if not found.pause and found.age_s and found.usual_s is None:
        assert found.age_s <= FIRST_STEP_S


@pytest.mark.parametrize(
    ("seconds", "says"), [(0.0, "0 s"), (0.21, "0.21 s"), (40.4, "40 s"), (360, "6 min"), (12_600, "3.5 h")]
)  # fmt: skip
def test_durations_in_words(seconds: float, says: str) -> None:
    assert duration(seconds) == says
