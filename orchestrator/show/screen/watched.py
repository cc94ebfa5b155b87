"""The runs of a screen, looked at repeatedly, and the details of one of them."""

from __future__ import annotations

from collections.abc import Sequence

from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.follow import Followed
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.show.screen import final_table
from torusrun.orchestrator.show.screen.detail import Details


class WatchedRuns(Followed):
    """The runs of a screen."""

    def __init__(self, runs: Sequence[RunFolder]) -> None:
        super().__init__(runs)
        self._by_folder = {str(run.folder): run for run in runs}

    def details(self, number: int) -> Details:
        """The details of the run with this index in each look."""
        return Details(self._folders[number])

    def rows(self, view: View) -> list[tuple[str, str]]:
        """The table at the end of a run."""
        return final_table.rows(self._by_folder[view.folder], view)
