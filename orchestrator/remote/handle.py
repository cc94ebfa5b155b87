"""A run on a login node in Python: the functions of `report.handle.Run`, each over a connection of its own."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.cli.handle import Run
from torusrun.orchestrator.remote import remote_runs as known_runs
from torusrun.orchestrator.remote.remote_runs import Known
from torusrun.orchestrator.run.folder import patterns
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.account import Account
from torusrun.orchestrator.run.state.view import View


class RunThere(Run):
    """A run on a login node, with the functions of `Run`, each over a connection of its own.

    Functions that need its folder raise UserError: `collect` copies it here.
    """

    def __init__(self, known: Known) -> None:
        object.__setattr__(self, "known", known)

    known: Known

    @property
    def folder(self) -> RunFolder:
        raise UserError(f"{self.id} is on {self.known.host.address}: `run.collect(FOLDER)` copies its folder here")

    @property
    def id(self) -> str:
        return self.known.run

    def __repr__(self) -> str:
        return f"RunThere({self.id!r} on {self.known.host.address})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunThere) and self.known.run == other.known.run

    def __hash__(self) -> int:
        return hash(self.id)

    def status(self) -> View:
        from torusrun.orchestrator.remote import status

        return status.views([self.known])[0]

    def _follow(self) -> Generator[View, None, None]:
        from torusrun.orchestrator.remote.feed import Feed

        with Feed([self.known]) as feed:
            for (view,) in feed.follow():
                yield view

    def metrics(self) -> list[dict[str, Any]]:
        rows: tuple[dict[str, Any], ...] = self._ask(tuple[dict[str, Any], ...], "metrics")
        return list(rows)

    def account(self) -> Account:
        found: Account = self._ask(Account, "account")
        return found

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
        new_image: bool = False,
        held: str = "",
    ) -> Path | None:
        changes = {"time": time, "nodes": nodes, "grid": grid, "exclude": list(exclude)}
        held = known_runs.held_on(self.known.host, held)
        how = {**changes, "force": force, "new_image": new_image, "held": held}
        origin = self._ask(str | None, "resume", how)
        return Path(origin) if origin else None

    def reproduce(self) -> RunThere:
        from torusrun.orchestrator.remote.of_file import again

        return RunThere(again(self.known))

    def provenance(self) -> dict[str, Any]:
        found: dict[str, Any] = self._ask(dict[str, Any], "provenance")
        return found

    def shell(self, *command: str, rank: int = 0, terminal: bool = False) -> int:
        """As in `Run`. Raises LinkLost if the link breaks, which ends the command."""
        from torusrun.orchestrator.remote.session import Session

        with Session(self.known.host, 0) as session:
            return session.interact(["shell", self.id, f"--rank={rank}", "--", *command], terminal=terminal)

    def forward(self, port: int, *, rank: int = 0, host: str = "", listen: str = "") -> int:
        """As in `Run`; the local port is on this machine. Raises LinkLost if the link breaks."""
        from torusrun.orchestrator.beside.forwarding import listening
        from torusrun.orchestrator.remote.session import Session

        beside = [f"--host={host}"] if host else [f"--rank={rank}"]
        words = ["forward", self.id, str(port), *beside, f"--listen={listening.PASSES_ON}"]
        with Session(self.known.host, 0) as session:
            return listening.listen(
                lambda streams: session.interact(words, terminal=False, streams=streams), port, listen
            )

    def wait_until_held(self) -> View:
        from torusrun.orchestrator.remote.status import view_of

        return view_of(self.known, self._ask(View, "wait_until_held", within_s=float("inf")))

    def collect(self, into: str | Path, *, checkpoints: str = "newest", only: str = "") -> Path:
        from torusrun.orchestrator.remote.collect import collect as collect_there

        return collect_there(self.known, Path(into), checkpoints, patterns.parse_list(only))

    def _page(self) -> str:
        from torusrun.orchestrator.remote.report import html

        return html([self.known])

    def _ask(
        self, kind: Any, function: str, values: Mapping[str, Any] | None = None, within_s: float | None = None
    ) -> Any:
        """The return value of the run's function on the login node, as a value of this type."""
        from torusrun.orchestrator.remote import asking
        from torusrun.orchestrator.remote.session import Session

        request = {"do": "run", "run": self.id, "function": function, "values": values or {}}
        with Session(self.known.host) as link:
            return asking.answer(link, request, kind, within_s=within_s or asking.LONGEST_S)
