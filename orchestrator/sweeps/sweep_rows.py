"""The rows of a sweep's table, from its folder and the states of its members."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.sweep_folder import SweepFolder, number_of
from torusrun.orchestrator.run.state.poll import views
from torusrun.orchestrator.sweeps.results import results
from torusrun.orchestrator.sweeps.sweep_table import MemberRow


def rows_of(sweep: SweepFolder, members: Sequence[RunFolder]) -> list[MemberRow]:
    """A row for each of these members. It queries the scheduler if necessary. Raises SiteError for a damaged sweep."""
    settings = sweep.settings()
    found = []
    for view in views(members):
        run = RunFolder(Path(view.folder))
        number = number_of(run)
        own = settings[number] if number < len(settings) else {}
        found.append(MemberRow(number, own, view, results(run)))
    return found
