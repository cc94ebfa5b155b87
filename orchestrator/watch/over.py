"""Views of runs that are over, kept so that nobody looks into their folders again."""

from __future__ import annotations

import json
from collections.abc import Sequence

from orchestrator.runs import index, settled
from orchestrator.runs.settled import Settled
from orchestrator.states import State
from orchestrator.watch.view import Record, View


def kept(row: Settled) -> View | None:
    """The view that was kept of a run; None where the run is gone, has gone on, or was kept by another version."""
    if not row.holds:
        return None
    try:
        told = json.loads(row.text)
        grid = told["grid"] and tuple(told["grid"])
        tuples = {"grid": grid, "hosts": tuple(told["hosts"]), "damaged": tuple(told["damaged"])}
        return View(**{**told, **tuples, "state": State(told["state"])})
    except (ValueError, TypeError, KeyError):
        return None


def keep(found: Sequence[tuple[Record, View]]) -> None:
    """Keep the views of one's own runs that are over for good, as far as they are in the index and whole."""
    settled.keep([row for record, view in found if _is_final(record, view) and (row := _row(record, view))])


def _is_final(record: Record, view: View) -> bool:
    return record.mine and record.settled and not record.followed and view.state.over and not view.damaged


def _row(record: Record, view: View) -> Settled | None:
    made_ns = index.made_ns(record.folder)
    if made_ns is None:
        return None
    submitted = "" if view.submitted_s is None else repr(view.submitted_s)
    text = json.dumps(view.as_json(), separators=(",", ":"))
    seen = settled.now(record.folder)
    return Settled(
        record.folder.run_id,
        str(made_ns),
        str(record.folder.folder),
        view.state.value,
        view.site,
        submitted,
        seen,
        text,
    )
