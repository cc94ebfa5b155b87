"""What `submit --wait` shows: on a terminal a line that keeps its bar where it is narrow, elsewhere lines of words."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.unit.terminals import bare
from tests.unit.test_views_table import FAILED, NAME, PENDING, RUNNING, view
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.terminal import output
from torusrun.orchestrator.base.terminal.plain import display_width
from torusrun.orchestrator.run.folder import metrics
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.show.progress_text import words
from torusrun.orchestrator.show.screen import final_table, live
from torusrun.orchestrator.show.screen.live import Line
from torusrun.training.reporting.metrics import Metrics

FAST = replace(RUNNING, images_per_s=3264.2, accuracy=0.9472)
PAUSED = replace(FAST, eta_s=None, pause="no step for 4 min, usual 0.2 s", reason="being deleted")
ERASED = "\r\x1b[2K"
BARE = view(age_s=185.0)


def drawn(shown: View, width: int, said: str = "", *, colours: bool = True) -> str:
    """What a terminal of that width gets, escape sequences included."""
    file = io.StringIO()
    size = {"width": width, "height": 24}
    console = Console(**size, force_terminal=True, file=file, color_system="standard", no_color=not colours)
    console.print(Line(shown, said), end="")
    return file.getvalue()


def line(shown: View, width: int, said: str = "") -> str:
    """The same without escape sequences."""
    return bare(drawn(shown, width, said))


def kept_lines(written: str) -> list[str]:
    """The lines that stay on a terminal, and were not drawn anew."""
    return [text for state in written.split(ERASED) for text in bare(state).split("\n")[:-1]]


def bar_of(text: str) -> int:
    """The columns of the bar in a line."""
    return sum(text.count(mark) for mark in "━╸╺")


def test_at_80_columns_the_bar_is_kept_and_what_matters_least_goes() -> None:
    assert line(FAST, 80) == f"{NAME} RUNNING ━━━╺━━━━━━━━ step 120/450 ETA 3m loss 0.5000"


@pytest.mark.parametrize(
    ("width", "kept"), [(119, 6), (118, 5), (109, 5), (108, 4), (93, 4), (92, 3), (78, 3), (77, 2), (65, 1), (58, 0)]
)
def test_parts_are_left_out_in_this_order(width: int, kept: int) -> None:
    parts = [NAME, "ETA 3m", "loss 0.5000", "3,264 images/s", "accuracy 94.72%", "age 1h02m"]
    shown = line(FAST, width)
    assert [part for part in parts if part in shown] == parts[:kept]
    assert "RUNNING ━" in shown and "step 120/450" in shown and bar_of(shown) >= 10


def test_the_bar_is_as_long_from_step_to_step() -> None:
    shown = [line(replace(FAST, step=step, loss=1 / step), 80) for step in (9, 99, 449)]
    assert len({bar_of(text) for text in shown}) == 1 and "step   9/450" in shown[0]


def test_the_colour_is_that_of_the_state_and_without_colours_all_keeps_its_place() -> None:
    assert "\x1b[36mRUNNING" in drawn(FAST, 80) and "\x1b[36m━━━" in drawn(FAST, 80)
    assert "\x1b[33mPENDING" in drawn(PENDING, 80)
    assert "\x1b[31mFAILED" in drawn(FAILED, 80) and "\x1b[31m━" in drawn(FAILED, 80)
    assert "\x1b[33mno step for 4 min" in drawn(PAUSED, 80)
    shown = bare(drawn(FAST, 80, colours=False))
    assert shown == f"{NAME} RUNNING ━━━          step 120/450 ETA 3m loss 0.5000"


def test_without_steps_a_line_has_a_reason_the_newest_line_of_rank_0_or_a_pause() -> None:
    known = replace(BARE, step=1200, loss=0.25)
    assert line(known, 80, "a line") == f"{NAME} RUNNING step 1200 loss 0.2500 age 3m"
    assert words(known, "a line") == f"{NAME} RUNNING step 1200, loss 0.2500, age 3m"
    assert line(replace(known, total_steps=0), 80) == f"{NAME} RUNNING step 1200/0 loss 0.2500 age 3m"
    assert line(BARE, 80, "epoch 3 of 90") == f"{NAME} RUNNING age 3m epoch 3 of 90"
    assert words(BARE, "epoch 3 of 90") == f"{NAME} RUNNING age 3m, epoch 3 of 90"
    assert line(BARE, 80, "[red]loss[/] :smile:").endswith("age 3m [red]loss[/] :smile:"), "it is no markup"
    assert line(BARE, 80, "x" * 200) == f"{NAME} RUNNING age 3m {'x' * 36}…"
    waiting = replace(BARE, pause="no step yet, started 3 min ago")
    assert line(waiting, 80, "epoch 3") == f"{NAME} RUNNING age 3m epoch 3"
    assert line(waiting, 80) == f"{NAME} RUNNING age 3m no step yet, started 3 min ago"
    assert words(replace(waiting, reason="being deleted"), "epoch 3").endswith("age 3m, being deleted")


def test_a_run_that_waits_says_why_and_a_pause_is_shown_in_place_of_the_time_left() -> None:
    reason = "it waits for free nodes (Slurm: Resources)"
    assert words(PENDING, "") == f"{NAME} PENDING age 59s, {reason}"
    assert line(PENDING, 120) == f"{NAME} PENDING age 59s {reason}"
    assert line(PAUSED, 80) == f"{NAME} RUNNING ━━━╺━━━━━━━━━ step 120/450 no step for 4 min"
    assert words(PAUSED, "").endswith(", age 1h02m, being deleted; no step for 4 min, usual 0.2 s")


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


WIDTHS = st.sampled_from([40, 80, 120]) | st.integers(1, 160)


@given(VIEWS, WIDTHS, st.sampled_from(["said", "日本" * 50, ""]))
def test_every_line_fits(shown: View, width: int, said: str) -> None:
    text = line(shown, width, said)
    assert "\n" not in text and display_width(text) <= width


@given(VIEWS, st.sampled_from([80, 120]) | st.integers(60, 160))
def test_the_bar_is_there_wherever_the_steps_are_known(shown: View, width: int) -> None:
    text = line(shown, width)
    assert (bar_of(text) >= 10) == bool(shown.step is not None and shown.total_steps), text


def all_of(keeper: int) -> str:
    """What was written to a terminal whose other end is closed, which a single read need not return."""
    text = b""
    try:
        while block := os.read(keeper, 1 << 16):
            text += block
    except OSError:  # EIO: there is no more
        os.close(keeper)
    return text.decode()


FOLLOW = """
import sys
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.cli.api import open_run
from torusrun.orchestrator.cli.verbs.watch import follow_to_end
main(["examples"])
sys.exit(follow_to_end(open_run(sys.argv[1])))
"""


def watched(run: RunFolder, **environment: str) -> str:
    """What `submit --wait` writes to a terminal while it follows a run."""
    keeper, there = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    said = subprocess.run(
        [sys.executable, "-c", FOLLOW, run.run_id],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=there, timeout=60,
        env={**kept, "TERM": "xterm", **environment}, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    os.close(there)
    shown = all_of(keeper)
    assert said.returncode == 0
    return shown


def test_a_terminal_gets_one_redrawn_line_that_fits(run: RunFolder) -> None:
    shown = watched(run, PYTHONUTF8="1")
    (last,) = kept_lines(shown)
    assert last.startswith(f"{run.run_id} COMPLETED ━━━━━━━━━━") and len(last) <= 80 and "step 40/40" in last
    assert shown.rstrip().endswith("\x1b[?25h"), "the cursor is shown again"


class Screen:
    """A terminal of 80 columns in place of stderr or stdout."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.keeper, there = pty.openpty()
        self.stream = os.fdopen(there, "w", encoding="utf-8")
        monkeypatch.setattr(sys, name, self.stream)
        for variable in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "LINES"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "80")

    def closed(self) -> str:
        """Close it; what was written to it."""
        self.stream.close()
        return all_of(self.keeper)


def test_a_remark_is_printed_once_above_the_line(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [replace(FAST, pause=f"no step for {n} min, usual 0.2 s") for n in (4, 5, 6)]
    seen += [FAST, seen[0], replace(FAST, state=State.COMPLETED, reason="all 4 ranks ended well", eta_s=None)]
    monkeypatch.setattr("torusrun.orchestrator.show.screen.live.follow", lambda run: iter(seen))
    screen = Screen(monkeypatch, "stderr")
    assert live.show(run) == seen[-1]
    shown = screen.closed()
    assert kept_lines(shown) == ["no step for 4 min, usual 0.2 s", line(seen[-1], 80)]
    assert line(seen[1], 80) in [bare(state) for state in shown.split(ERASED)]


def test_a_line_follows_the_width_of_its_terminal(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(monkeypatch, "stderr")
    monkeypatch.delenv("COLUMNS")

    def resized(run: RunFolder):  # type: ignore[no-untyped-def]
        for columns in (120, 40):
            monkeypatch.setattr("os.get_terminal_size", lambda fd, columns=columns: os.terminal_size((columns, 24)))
            yield FAST

    monkeypatch.setattr("torusrun.orchestrator.show.screen.live.follow", resized)
    live.show(run)
    shown = screen.closed()
    assert bare(shown.split(ERASED)[0]) == line(FAST, 120) and kept_lines(shown) == [line(FAST, 40)]


def test_the_table_at_the_end_folds_in_its_column_on_a_terminal(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    final_table.show(final_table.rows(run, FAILED), FAILED.state)
    plain_lines = capsys.readouterr().out.splitlines()
    assert f"state          FAILED: {FAILED.reason}" in plain_lines
    screen = Screen(monkeypatch, "stdout")
    final_table.show(final_table.rows(run, FAILED), FAILED.state)
    shown = screen.closed()
    assert "\x1b[31mFAILED: " in shown
    lines = [text.rstrip() for text in bare(shown).splitlines()]
    n = next(n for n, text in enumerate(lines) if text.startswith("state "))
    column = lines[n].index("FAILED")
    assert all(len(text) <= 80 for text in lines) and lines[n + 1].startswith(" " * column)
    assert " ".join(text[column:] for text in lines[n : n + 2]) == f"FAILED: {FAILED.reason}"


def test_the_table_at_the_end_shows_an_ensemble(run: RunFolder) -> None:
    evaluation = {"accuracy": 0.96, "top5": 0.999, "members": [0.97, 0.95], "best_member": 0.97, "ensemble": 0.98}
    Metrics(run.metrics, 1).write("done", step=40, **evaluation)
    table = dict(final_table.rows(run, replace(FAILED, accuracy=0.96)))
    assert table["test accuracy"] == "96.00% (top 5: 99.90%)"
    assert table["ensemble"] == "98.00% (2 members, the best has 97.00%)"


def test_members_that_are_no_numbers_are_a_damaged_row(run: RunFolder) -> None:
    before = metrics.checked(run.metrics)[1]
    for members in (0.9, ["0.9"], {"1": 0.9}):
        Metrics(run.metrics, 1).write("done", step=40, members=members)
    assert metrics.checked(run.metrics)[1] == before + 3


def test_a_terminal_that_cannot_draw_gets_lines_and_an_encoding_without_blocks_ascii(run: RunFolder) -> None:
    assert watched(run, TERM="dumb").startswith(f"{run.run_id} COMPLETED step 40/40, loss 0.0250, accuracy 97.00%")
    assert "\x1b" not in watched(run, TERM="dumb")
    shown = watched(run, PYTHONIOENCODING="ascii", LC_ALL="C")
    assert "COMPLETED ----------" in bare(shown)


def test_a_terminal_that_calls_itself_0_columns_wide_gets_80(run: RunFolder) -> None:
    (last,) = kept_lines(watched(run, PYTHONUTF8="1", COLUMNS="0"))
    assert last.startswith(f"{run.run_id} COMPLETED ━━━━━━━━━━")


def test_the_width_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    keeper, there = pty.openpty()
    with os.fdopen(there, "w") as stream:
        assert output.width(stream) == 80, "a terminal of no size"
        monkeypatch.setenv("COLUMNS", "132")
        assert output.width(stream) == 132
        monkeypatch.setenv("COLUMNS", "wide")
        assert output.width(stream) == 80
    os.close(keeper)
    with open(os.devnull, "w") as stream:
        assert output.width(stream) is None
