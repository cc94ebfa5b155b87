"""A run's progress in words, and runs without a terminal: a line for each change, and now and then for each at work."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from torusrun.orchestrator.base.shown.numbers import number, percent, steps, thousands
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.base.terminal.remarks import progress
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.follow import follow_all
from torusrun.orchestrator.run.state.pace import short
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.show.listing import forecast
from torusrun.orchestrator.show.logs.source import newest_line

LINE_EVERY_S = 10.0
LINES_PER_S = 1.0  # of all runs together, besides lines about changes


def show(runs: Sequence[RunFolder], seen: Callable[[View], None] = lambda view: None) -> list[View]:
    """Follow the runs to their ends, with lines on stderr now and then, and call `seen`; returns their last views."""
    printed: dict[str, State] = {}
    due_s = 0.0
    for views in follow_all(runs):
        at_work = [view for view in views if not view.state.over]
        due = time.monotonic() >= due_s
        if due:
            due_s = time.monotonic() + max(LINE_EVERY_S, len(at_work) / LINES_PER_S)
        for run, view in zip(runs, views, strict=True):
            seen(view)
            if printed.get(view.folder) is not view.state or (due and not view.state.over):
                printed[view.folder] = view.state
                progress(words(view, said_by(run, view)))
    return views


def said_by(run: RunFolder, view: View) -> str:
    """The newest line of rank 0's log, for a run without steps; otherwise ''."""
    return newest_line(run.attempt(view.attempt).rank_log(0)) if view.step is None else ""


def words(view: View, said: str) -> str:
    """One line for a log: all figures, not cut, and the remarks on a run that is not over.

    `said` is the newest line of rank 0's log, for a run without steps.
    """
    rest = remark(view, said) if view.step is None else "" if view.state.over else plain(view.remarks)
    parts = ", ".join(filter(None, [*figures(view).values(), rest]))
    return f"{plain(view.run)} {view.state.value} {parts}".rstrip()


def remark(view: View, said: str) -> str:
    """The remark on a run without steps: why it has none, its newest output, or that it writes nothing."""
    return plain("; ".join(filter(None, (view.reason, view.waiting)))) or said or plain(view.pause)


def figures(view: View) -> dict[str, str]:
    """The known figures of a run's progress, each in a few words, in the order of display."""
    at_work = view.state in (State.PENDING, State.RUNNING, State.UNKNOWN)
    known = {
        "step": None if view.step is None else f"step {steps(view.step, view.total_steps)}",
        "eta": None if view.eta_s is None else f"ETA {short(view.eta_s)}",
        "forecast": forecast(view),
        "loss": None if view.loss is None else f"loss {number(view.loss)}",
        "speed": None if view.images_per_s is None or view.state.over else f"{thousands(view.images_per_s)} images/s",
        "accuracy": None if view.accuracy is None else f"accuracy {percent(view.accuracy)}",
        "age": f"age {short(view.age_s)}" if view.age_s is not None and at_work else None,
    }
    return {name: text for name, text in known.items() if text}
