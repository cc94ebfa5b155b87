"""What `submit --wait` shows without a screen: lines of words, and the table at the end."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import strategies as st

from tests.unit.terminals import bare
from tests.unit.test_views_table import FAILED, NAME, PENDING, RUNNING, view
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.terminal import output
from torusrun.orchestrator.run.folder import metrics
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.show.screen.printed import end_rows, show_table, words
from torusrun.training.reporting.metrics import Metrics

FAST = replace(RUNNING, images_per_s=3264.2, accuracy=0.9472)
PAUSED = replace(FAST, eta_s=None, pause="no step for 4 min, usual 0.2 s", reason="being deleted")
BARE = view(age_s=185.0)


def test_the_words_of_a_run_with_steps() -> None:
    known = replace(BARE, step=1200, loss=0.25)
    assert words(known, "a line") == f"{NAME} RUNNING step 1200, loss 0.2500, age 3m"
    assert words(PAUSED, "").endswith(", age 1h02m, being deleted; no step for 4 min, usual 0.2 s")


def test_without_steps_a_reason_comes_before_the_log_and_the_log_before_a_pause() -> None:
    assert words(BARE, "epoch 3 of 90") == f"{NAME} RUNNING age 3m, epoch 3 of 90"
    assert words(PENDING, "") == f"{NAME} PENDING age 59s, it waits for free nodes (Slurm: Resources)"
    waiting = replace(BARE, pause="no step yet, started 3 min ago")
    assert words(waiting, "epoch 3").endswith("age 3m, epoch 3")
    assert words(waiting, "").endswith("age 3m, no step yet, started 3 min ago")
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
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=there, timeout=300,
        env={**kept, "TERM": "xterm", **environment}, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    os.close(there)
    shown = all_of(keeper)
    assert said.returncode == 0
    return shown


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


def test_the_table_at_the_end_folds_in_its_column_on_a_terminal(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    show_table(end_rows(run, FAILED), FAILED.state)
    plain_lines = capsys.readouterr().out.splitlines()
    assert f"state          FAILED: {FAILED.reason}" in plain_lines
    screen = Screen(monkeypatch, "stdout")
    show_table(end_rows(run, FAILED), FAILED.state)
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
    table = dict(end_rows(run, replace(FAILED, accuracy=0.96)))
    assert table["test accuracy"] == "96.00% (top 5: 99.90%)"
    assert table["ensemble"] == "98.00% (2 members, the best has 97.00%)"


def test_members_that_are_no_numbers_are_a_damaged_row(run: RunFolder) -> None:
    before = metrics.checked(run.metrics)[1]
    for members in (0.9, ["0.9"], {"1": 0.9}):
        Metrics(run.metrics, 1).write("done", step=40, members=members)
    assert metrics.checked(run.metrics)[1] == before + 3


def test_a_terminal_that_cannot_draw_gets_lines(run: RunFolder) -> None:
    assert watched(run, TERM="dumb").startswith(f"{run.run_id} COMPLETED step 40/40, loss 0.0250, accuracy 97.00%")
    assert "\x1b" not in watched(run, TERM="dumb")


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
