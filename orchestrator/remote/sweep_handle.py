"""A sweep on a login node in Python: the functions of `report.sweep_handle.Sweep`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.cli.handle import Run
from torusrun.orchestrator.cli.sweep_handle import Sweep
from torusrun.orchestrator.remote import remote_runs
from torusrun.orchestrator.remote.handle import RunThere
from torusrun.orchestrator.remote.remote_runs import Known
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.sweep_folder import SweepFolder
from torusrun.orchestrator.run.state.view import View


class SweepThere(Sweep):
    """A sweep on a login node, with the functions of `Sweep`. It has no folders here."""

    def __init__(self, known: Known) -> None:
        object.__setattr__(self, "known", known)

    known: Known

    @property
    def folder(self) -> SweepFolder:
        raise UserError(f"{self.id} is on {self.known.host.address}: `run.collect(FOLDER)` copies a member here")

    @property
    def folders(self) -> list[RunFolder]:
        raise UserError(f"{self.id} is on {self.known.host.address}: `run.collect(FOLDER)` copies a member here")

    @property
    def id(self) -> str:
        return self.known.run

    def __repr__(self) -> str:
        return f"SweepThere({self.id!r} on {self.known.host.address})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SweepThere) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def runs(self) -> list[Run]:
        return [RunThere(run) for run in remote_runs.members(self.known)]

    def status(self) -> list[View]:
        from torusrun.orchestrator.remote import status

        return status.views(remote_runs.members(self.known))

    def results(self) -> list[dict[str, float]]:
        return list(self._ask(tuple[dict[str, float], ...], "results"))

    def settings(self) -> list[dict[str, str]]:
        return list(self._ask(tuple[dict[str, str], ...], "settings"))

    def cancel(self) -> None:
        self._ask(type(None), "cancel")

    def resume(
        self,
        *,
        time: str | None = None,
        nodes: int | None = None,
        grid: str | None = None,
        exclude: Sequence[str] = (),
        force: bool = False,
    ) -> list[Run]:
        changes = {"time": time, "nodes": nodes, "grid": grid, "exclude": list(exclude), "force": force}
        resumed = self._ask(tuple[str, ...], "resume", changes)
        self.status()  # those that are known here as over are not
        return [run for run in self.runs if run.id in resumed]

    def wait(self, timeout_s: float | None = None) -> list[View]:
        from torusrun.orchestrator.remote.feed import Feed

        with Feed(remote_runs.members(self.known)) as feed:
            return self._last_of(feed.follow(), timeout_s)

    def _ask(self, kind: Any, function: str, values: Mapping[str, Any] | None = None) -> Any:
        """The return value of the sweep's function on the login node, as a value of this type."""
        from torusrun.orchestrator.remote import asking
        from torusrun.orchestrator.remote.session import Session

        request = {"do": "of_sweep", "run": self.id, "function": function, "values": values or {}}
        with Session(self.known.host) as link:
            return asking.answer(link, request, kind)
