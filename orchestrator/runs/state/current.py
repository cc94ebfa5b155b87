"""Runs as their schedulers see them now, before something is done to them or because of them."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.runs.folder.run_folder import RunFolder
from orchestrator.runs.state.follow import follow
from orchestrator.runs.state.poll import views
from orchestrator.runs.state.view import View


def look(run: RunFolder, *, newest: bool = False) -> View:
    """A run as its scheduler sees it now: the attempt that works, or the newest."""
    return views([run], fresh=True, newest=newest)[0]


def look_at_all(runs: Sequence[RunFolder], *, newest: bool = False) -> Sequence[View]:
    """Runs as their schedulers see them now, each asked once: the attempts that work, or the newest."""
    return views(runs, fresh=True, newest=newest)


def once_held(run: RunFolder) -> View:
    """A held allocation as it is once it takes attempts, or is over."""
    for view in follow(run):
        if view.state.over or run.attempt(view.attempt).keeper.exists():
            break
    return look(run)
