"""The Python interface of a sweep: its members, their states, and its verbs."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from time import monotonic

from torusrun.orchestrator.cli.handle import Run
from torusrun.orchestrator.run.attempts.cancel import cancel_all
from torusrun.orchestrator.run.folder.changes import Changes
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.sweep_folder import SweepFolder, find
from torusrun.orchestrator.run.plan.attempt_plan import changes
from torusrun.orchestrator.run.state.follow import follow_all
from torusrun.orchestrator.run.state.poll import views
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.sweeps.resume import resume
from torusrun.orchestrator.sweeps.table import results
from torusrun.training.counted import counted


@dataclass(frozen=True)
class Sweep:
    """A submitted sweep: a handle on its folder."""

    folder: SweepFolder

    @property
    def id(self) -> str:
        return self.folder.sweep_id

    @property
    def folders(self) -> list[RunFolder]:
        """The folders of its members, without those that were removed."""
        return find(self.id)[1]

    @property
    def runs(self) -> list[Run]:
        """Its members."""
        return [Run(folder) for folder in self.folders]

    def status(self) -> list[View]:
        """The current view of each member. It queries the scheduler if necessary."""
        return views(self.folders)

    def results(self) -> list[dict[str, float]]:
        """The newest value of each metric of each member."""
        return [results(folder) for folder in self.folders]

    def settings(self) -> list[dict[str, str]]:
        """The settings in which the members differ, by number; of a study those that it has chosen so far.

        Raises SiteError if the sweep is damaged.
        """
        return self.folder.settings()

    def cancel(self) -> None:
        """End the members that are not over. Raises the first error."""
        left = [run for run, view in zip(self.folders, self.status(), strict=True) if not view.state.over]
        for error in cancel_all(left).values():
            raise error

    def resume(
        self,
        *,
        time: str | None = None,
        nodes: int | None = None,
        grid: str | None = None,
        exclude: Sequence[str] = (),
        force: bool = False,
    ) -> list[Run]:
        """Submit a new attempt of each member that is over and not COMPLETED, together; these members.

        The changes are those of `Run.resume`. Raises the errors of `sweeps.resume.resume`.
        """
        return self._resume(changes(time, nodes, grid, exclude), force)

    def _resume(self, made: Changes, force: bool) -> list[Run]:
        return [Run(folder) for folder in resume(self.folder, self.folders, made, force=force)]

    def wait(self, timeout_s: float | None = None) -> list[View]:
        """Wait until all members are over; their last views. Raises TimeoutError as `Run.wait` does."""
        with closing(self._follow()) as followed:
            return self._last_of(followed, timeout_s)

    def _last_of(self, followed: Iterable[Sequence[View]], timeout_s: float | None) -> list[View]:
        """The last views of those that follow the members."""
        until_s = monotonic() + (float("inf") if timeout_s is None else timeout_s)
        last: Sequence[View] = ()
        for last in followed:
            left = sum(not view.state.over for view in last)
            if left and monotonic() > until_s:
                raise TimeoutError(f"{counted(left, 'run')} of {self.id} not over after {timeout_s:g} s")
        return list(last)

    def _follow(self) -> Generator[list[View], None, None]:
        yield from follow_all(self.folders)
