"""The current views of runs, from a new query of their schedulers."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.runs.folder.run_folder import RunFolder
from orchestrator.runs.state.follow import follow
from orchestrator.runs.state.poll import views
from orchestrator.runs.state.view import View


def look(run: RunFolder, *, newest: bool = False) -> View:
    """The current view of a run, by its scheduler: of the working attempt, or of the newest."""
    return views([run], fresh=True, newest=newest)[0]


def look_at_all(runs: Sequence[RunFolder], *, newest: bool = False) -> Sequence[View]:
    """The current views of runs, with one query per scheduler: of the working attempts, or of the newest."""
    return views(runs, fresh=True, newest=newest)


def once_held(run: RunFolder) -> View:
    """Wait until a held allocation takes attempts or is over; its view then."""
    for view in follow(run):
        if view.state.over or run.attempt(view.attempt).keeper.exists():
            break
    return look(run)
