"""The kept views of runs that are over: their folders are not read again."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.run.folder import attempt_folders, index, settled
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.settled import Settled
from torusrun.orchestrator.run.state.record import Record
from torusrun.orchestrator.run.state.view import View


def ids(runs: Sequence[RunFolder]) -> Collection[str]:
    """The ids of those runs that are over for good, by their kept rows, or else by their end records alone.

    A run that is over by its end record is kept without its view. Its end record is not read again.
    """
    known = settled.runs()
    new = [row for run in runs if run.run_id not in known and (row := _ended(run))]
    settled.keep([row for row in new if row.holds])  # not a run that was resumed since
    return known.keys() | {row.run_id for row in new}


def _ended(run: RunFolder) -> Settled | None:
    """The row (without a view) of a run whose newest attempt recorded its end; None for any other run."""
    seen, numbers = settled.now(run), attempt_folders.attempts(run)
    end = End.readable(run.attempt(numbers[-1]).end) if seen and numbers else None  # the view reports damage
    return _row(run, end.state, seen) if end and end.certain and not end.kept_going else None


def _row(run: RunFolder, state: State, seen: str, view: View | None = None) -> Settled | None:
    """The row of a run that is over in this `state`, with its view if that is known; None if it is not in the index."""
    made_ns = index.made_ns(run)
    if made_ns is None:
        return None
    submitted = repr(view.submitted_s) if view and view.submitted_s is not None else ""
    text = json.dumps(view.as_json(), separators=(",", ":")) if view else ""
    site = view.site if view else ""
    return Settled(run.run_id, str(made_ns), str(run.folder), state.value, site, submitted, seen, text)


def kept(row: Settled) -> View | None:
    """The kept view of a run; None if the run is gone, was resumed, or was kept by another version."""
    if not row.holds:
        return None
    try:
        values = json.loads(row.text)
        grid = values["grid"] and tuple(values["grid"])
        tuples = {"grid": grid, **{name: tuple(values[name]) for name in ("hosts", "damaged", "forecast_s")}}
        return View(**{**values, **tuples, "state": State(values["state"])})
    except (ValueError, TypeError, KeyError):
        return None


def keep(views: Sequence[tuple[Record, View]]) -> None:
    """Keep the views of the user's own runs that are over for good, in the index and undamaged."""
    rows = (
        _row(record.folder, view.state, settled.now(record.folder), view)
        for record, view in views
        if record.mine and record.settled and view.state.over and not view.damaged
    )
    settled.keep(filter(None, rows))
