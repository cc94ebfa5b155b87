"""Runs without a terminal to draw on: a line for each change, and now and then one for each running run."""

from __future__ import annotations

import time
from collections.abc import Sequence

from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.terminal.remarks import progress
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.follow import follow_all
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.show.logs.source import newest_line
from torusrun.orchestrator.show.progress_text import words

LINE_EVERY_S = 10.0
LINES_PER_S = 1.0  # of all runs together, besides lines about changes


def show(runs: Sequence[RunFolder]) -> list[View]:
    """Follow the runs to their ends, with lines on stderr now and then; returns their last views."""
    said: dict[str, State] = {}
    due_s = 0.0
    for views in follow_all(runs):
        at_work = [view for view in views if not view.state.over]
        due = time.monotonic() >= due_s
        if due:
            due_s = time.monotonic() + max(LINE_EVERY_S, len(at_work) / LINES_PER_S)
        for run, view in zip(runs, views, strict=True):
            if said.get(view.folder) is not view.state or (due and not view.state.over):
                said[view.folder] = view.state
                progress(words(view, said_by(run, view)))
    return views


def said_by(run: RunFolder, view: View) -> str:
    """The newest line of rank 0's log, for a run without steps; otherwise ''."""
    return newest_line(run.attempt(view.attempt).rank_log(0)) if view.step is None else ""
