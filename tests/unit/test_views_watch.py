"""The line that `watch` draws: it keeps the bar on a narrow terminal, and any program's progress looks good in it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.runs.folder import RunFolder
from orchestrator.runs.records import End
from orchestrator.states import State
from orchestrator.watch import live, terminal
from orchestrator.watch.bar import ASCII, line, words
from orchestrator.watch.width import display_width
from tests.unit.run_folders import make, write_specs
from tests.unit.test_views_table import NAME, PENDING, RUNNING, view

FAST = replace(RUNNING, images_per_s=3264.2, accuracy=0.9472)
BARE = view(age_s=185.0)


def test_at_80_columns_the_bar_is_kept_and_what_matters_least_goes() -> None:
    assert line(FAST, "", 79) == f"{NAME} RUNNING ██░░░░░░░░░ step 120/450 ETA 3m loss 0.5000"


def test_at_120_columns() -> None:
    shown = "ETA 3m loss 0.5000 3,264 images/s accuracy 94.72% age 1h02m"
    assert line(FAST, "", 119) == f"{NAME} RUNNING ██░░░░░░░░ step 120/450 {shown}"


def test_a_very_narrow_terminal_keeps_state_bar_and_step() -> None:
    assert line(FAST, "", 40) == "RUNNING █████░░░░░░░░░░░░░░ step 120/450"
    assert line(FAST, "", 40, ASCII) == "RUNNING #####.............. step 120/450"


def test_the_bar_is_as_long_from_step_to_step() -> None:
    shown = [line(replace(FAST, step=step, loss=1 / step), "", 79) for step in (9, 99, 449)]
    assert len({text.count("█") + text.count("░") for text in shown}) == 1 and "step   9/450" in shown[0]


def test_without_a_number_of_steps_there_is_no_bar() -> None:
    known = replace(BARE, step=1200, loss=0.25)
    assert line(known, "a line", 79) == f"{NAME} RUNNING step 1200 loss 0.2500 age 3m"
    assert words(known, "a line") == f"{NAME} RUNNING step 1200, loss 0.2500, age 3m"
    assert line(replace(known, total_steps=0), "", 79) == f"{NAME} RUNNING step 1200/0 loss 0.2500 age 3m"


def test_without_any_metrics_the_newest_line_of_rank_0_is_shown() -> None:
    assert line(BARE, "epoch 3 of 90", 79) == f"{NAME} RUNNING age 3m epoch 3 of 90"
    assert words(BARE, "epoch 3 of 90") == f"{NAME} RUNNING age 3m, epoch 3 of 90"
    assert line(BARE, "x" * 200, 79) == f"{NAME} RUNNING age 3m {'x' * 35}…"


def test_a_run_that_waits_says_why() -> None:
    reason = "it waits for free nodes (Slurm: Resources)"
    assert words(PENDING, "") == f"{NAME} PENDING age 59s, {reason}"
    assert line(PENDING, "", 119) == f"{NAME} PENDING age 59s {reason}"


def test_a_pause_stands_where_the_time_left_would() -> None:
    paused = replace(FAST, eta_s=None, pause="no step for 4 min, usual 0.2 s", reason="being deleted")
    assert line(paused, "", 79) == f"{NAME} RUNNING ███░░░░░░░░░ step 120/450 no step for 4 min"
    assert words(paused, "").endswith(", age 1h02m, being deleted; no step for 4 min, usual 0.2 s")


def test_without_steps_a_reason_comes_before_the_log_and_the_log_before_a_pause() -> None:
    waiting = replace(BARE, pause="no step yet, started 3 min ago")
    assert line(waiting, "epoch 3", 79) == f"{NAME} RUNNING age 3m epoch 3"
    assert line(waiting, "", 79) == f"{NAME} RUNNING age 3m no step yet, started 3 min ago"
    assert words(replace(waiting, reason="being deleted"), "epoch 3").endswith("age 3m, being deleted")


VIEWS = st.builds(
    lambda name, state, **known: view(name, state, **known),
    st.text("abcdef-123", min_size=1, max_size=84),
    st.sampled_from(State),
    step=st.none() | st.integers(0, 10**6),
    total_steps=st.none() | st.integers(0, 10**6),
    loss=st.none() | st.floats(-1e14, 1e14),
    images_per_s=st.none() | st.floats(0, 1e14),
    accuracy=st.none() | st.floats(0, 1),
    eta_s=st.none() | st.floats(0, 1e9),
    age_s=st.none() | st.floats(0, 1e9),
    pause=st.sampled_from(["", "no step for 4 min, usual 0.2 s", "日本" * 50]),
)


@given(VIEWS, st.integers(1, 160))
def test_every_line_fits(shown: object, width: int) -> None:
    assert display_width(line(shown, "said", width)) <= width  # type: ignore[arg-type]


@given(VIEWS, st.integers(60, 160))
def test_the_bar_is_there_wherever_the_steps_are_known(shown: object, width: int) -> None:
    drawn = line(shown, "", width)  # type: ignore[arg-type]
    known = shown.step is not None and shown.total_steps  # type: ignore[attr-defined]
    assert (drawn.count("█") + drawn.count("░") >= 10) == bool(known), drawn


@pytest.fixture
def run(home: Path) -> RunFolder:
    return make(write_specs(home), End(State.COMPLETED, "all 4 ranks ended well"))


def watched(run: RunFolder, **environment: str) -> str:
    """What `watch` writes to a terminal."""
    keeper, there = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    said = subprocess.run(
        [sys.executable, "-m", "orchestrator", "watch", run.run_id],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=there, timeout=60,
        env={**kept, "TERM": "xterm", **environment}, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    os.close(there)
    shown = os.read(keeper, 1 << 16).decode()
    os.close(keeper)
    assert said.returncode == 0
    return shown


def test_a_terminal_gets_one_line_drawn_anew_that_fits(run: RunFolder) -> None:
    shown = watched(run, PYTHONUTF8="1")
    drawn = shown.rstrip().rpartition("\r\x1b[2K")[2]
    assert drawn.startswith(f"{run.run_id} COMPLETED ██████████") and len(drawn) < 80 and "step 40/40" in drawn


def test_what_is_remarkable_is_told_once_above_the_line(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [replace(FAST, pause=f"no step for {n} min, usual 0.2 s") for n in (4, 5, 6)]
    seen += [FAST, seen[0], replace(FAST, state=State.COMPLETED, reason="all 4 ranks ended well", eta_s=None)]
    monkeypatch.setattr("orchestrator.watch.live.follow", lambda run: iter(seen))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    keeper, there = pty.openpty()
    with os.fdopen(there, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        assert live.show(run) == seen[-1]
    shown = os.read(keeper, 1 << 16).decode().split("\r\x1b[2K")
    os.close(keeper)
    assert [text.strip() for text in shown if text.endswith("\n")] == [
        "no step for 4 min, usual 0.2 s",
        line(seen[-1], "", 79),
    ]
    assert shown[3] == line(seen[1], "", 79)


def test_a_terminal_that_cannot_draw_gets_lines(run: RunFolder) -> None:
    assert watched(run, TERM="dumb").startswith(f"{run.run_id} COMPLETED step 40/40, loss 0.0250, accuracy 97.00%")
    assert "\x1b" not in watched(run, TERM="dumb")


def test_an_encoding_without_blocks_gets_ascii(run: RunFolder) -> None:
    assert "COMPLETED ##########" in watched(run, PYTHONIOENCODING="ascii", LC_ALL="C")


def test_the_width_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    keeper, there = pty.openpty()
    with os.fdopen(there, "w") as stream:
        assert terminal.width(stream) == 80, "a terminal of no size"
        monkeypatch.setenv("COLUMNS", "132")
        assert terminal.width(stream) == 132
        monkeypatch.setenv("COLUMNS", "wide")
        assert terminal.width(stream) == 80
    os.close(keeper)
    with open(os.devnull, "w") as stream:
        assert terminal.width(stream) is None
