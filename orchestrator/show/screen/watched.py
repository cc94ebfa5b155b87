"""The runs of a screen, looked at repeatedly, and the details of one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.follow import Followed
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.show.screen import final_table
from torusrun.orchestrator.show.screen.detail import Detail, Details


class OneWatched(Protocol):
    """One run that is looked at repeatedly."""

    def look(self, view: View) -> Detail: ...


class WatchedRuns(Protocol):
    """Runs, here or on a login node. `note` is a message about the connection, or ''."""

    @property
    def note(self) -> str: ...

    @property
    def over(self) -> bool:
        """Whether no run will change by itself; False before the first look."""

    @property
    def rest_s(self) -> float:
        """The seconds to wait before the next look."""

    def look(self) -> list[View]: ...

    def details(self, number: int) -> OneWatched:
        """The details of the run with this index in each look."""

    def rows(self, view: View) -> list[tuple[str, str]]:
        """The table at the end of a run."""


class WatchedHere(Followed):
    """Runs whose folders are on this machine."""

    note = ""

    def __init__(self, runs: Sequence[RunFolder]) -> None:
        super().__init__(runs)
        self._by_folder = {str(run.folder): run for run in runs}

    def details(self, number: int) -> Details:
        return Details(self._folders[number])

    def rows(self, view: View) -> list[tuple[str, str]]:
        return final_table.rows(self._by_folder[view.folder], view)
