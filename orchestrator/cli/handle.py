"""The Python interface of a run, and of a sweep: their states, their metrics, and their verbs."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from torusrun.orchestrator.run.attempts.cancel import cancel, cancel_all
from torusrun.orchestrator.run.attempts.in_hold import find as find_held
from torusrun.orchestrator.run.attempts.reproduce import plan_again, reproduce
from torusrun.orchestrator.run.attempts.resume import resume
from torusrun.orchestrator.run.folder import metrics, patterns
from torusrun.orchestrator.run.folder.events import Changes
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.sweep_folder import SweepFolder
from torusrun.orchestrator.run.folder.sweep_folder import find as find_sweep
from torusrun.orchestrator.run.plan.attempt_plan import changes
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.plan.plan_files import read_plan
from torusrun.orchestrator.run.state.account import Account, read_account
from torusrun.orchestrator.run.state.follow import follow, follow_all
from torusrun.orchestrator.run.state.poll import look, views
from torusrun.orchestrator.run.state.record import read_record
from torusrun.orchestrator.run.state.view import View
from torusrun.training.checkpoint.manifest import Checkpoint, newest_complete
from torusrun.training.counted import counted


@dataclass(frozen=True)
class Run:
    """A submitted run: a handle on its folder, which holds all facts about it."""

    folder: RunFolder

    @property
    def id(self) -> str:
        return self.folder.run_id

    @property
    def plan(self) -> Plan:
        return read_plan(self.folder, read_record(self.folder).attempt)

    def status(self) -> View:
        """The current view of the run. It queries the scheduler if necessary."""
        return views([self.folder])[0]

    def wait(self, timeout_s: float | None = None) -> View:
        """Wait until the run is over; its last view. Raises TimeoutError if that takes longer than `timeout_s`."""
        until_s = monotonic() + (float("inf") if timeout_s is None else timeout_s)
        with closing(self._follow()) as followed:
            for view in followed:
                if not view.state.over and monotonic() > until_s:
                    raise TimeoutError(f"{self.id} is still {view.state.value} after {timeout_s:g} s")
        return view

    def _follow(self) -> Generator[View, None, None]:
        yield from follow(self.folder)

    def metrics(self) -> list[dict[str, Any]]:
        """All metrics of rank 0, in order, over all attempts."""
        return metrics.read(self.folder.metrics)

    def account(self) -> Account:
        """The attempts of the run, and where its time went. It queries the scheduler if necessary."""
        return read_account(self.folder, self.status().state)

    def checkpoint(self) -> Checkpoint | None:
        """The newest complete checkpoint of a training; None without any."""
        return newest_complete(self.folder.checkpoints)

    def cancel(self) -> None:
        """End the run. Running ranks save a checkpoint first. Raises UserError if the run is over already."""
        cancel(self.folder)

    def resume(
        self,
        *,
        time: str | None = None,
        nodes: int | None = None,
        grid: str | None = None,
        exclude: Sequence[str] = (),
        memory: str | None = None,
        force: bool = False,
        new_image: bool = False,
        held: str = "",
    ) -> Path | None:
        """Submit the next attempt; the checkpoint from which it continues, None for the beginning.

        `time` ('2h'), `nodes`, `grid` ('4x2'), `exclude` (hosts to avoid: 'n3', 'n[3-5]') and `memory` (of a node:
        '200G') hold for this attempt and all later ones. It runs in the held allocation `held`, or in its own job.
        Raises the errors of `attempts.resume.resume`.
        """
        return self._resume(changes(time, nodes, grid, exclude, memory), force, new_image, held)

    def _resume(self, made: Changes, force: bool, new_image: bool, held: str) -> Path | None:
        into = find_held(held) if held else None
        return resume(self.folder, made, force=force, new_image=new_image, into=into)

    def reproduce(self) -> Run:
        """Submit it again: the same code, image by checksum, settings, seed and grid; the new run.

        Raises the errors of `attempts.reproduce`.
        """
        return Run(reproduce(self.folder, plan_again(self.folder)))

    def provenance(self) -> dict[str, Any]:
        """Where it comes from, as `torusrun show --json` has it. It queries the scheduler if necessary."""
        from torusrun.orchestrator.show.origin import origin  # imported late, as for `shell`

        return origin(self.folder, self.status()).as_json()

    def shell(self, *command: str, rank: int = 0, role: str = "", terminal: bool = False) -> int:
        """Run a command, or a shell, on the host of a running rank (of a role), in its image; its exit code.

        It uses this process's own input and output. Raises UserError if the run is not running.
        """
        from torusrun.orchestrator.beside.shell import shell  # imported late: only this function needs its room

        return shell(self.folder, rank, command, terminal=terminal, role=role)

    def proxy(self, *, rank: int = 0, role: str = "") -> int:
        """Join this process's own input and output to an sshd on the host of a rank, as the ProxyCommand of ssh; 0.

        Raises UserError if the run is not running, SiteError if its host has no sshd or is not reached.
        """
        from torusrun.orchestrator.beside.proxy import proxy

        return proxy(self.folder, rank, role)

    def forward(self, port: int | str, *, rank: int = 0, role: str = "", listen: str = "") -> int:
        """Forward a local port to `port` on the host of a rank (of a role) until the attempt ends; then 0.

        A role's name in place of `port` is its own port. The local port is `listen` ('6007', '0.0.0.0:6007'), or `port`
        or a free port of loopback. Its address is printed. Raises UserError if the run is not running or the port
        cannot be opened, SiteError if the connection breaks.
        """
        from torusrun.orchestrator.beside.forward import forward

        return forward(self.folder, port, rank=rank, listen=listen, role=role)

    def wait_until_held(self) -> View:
        """Wait until a held allocation takes attempts, or is over; its last view."""
        for view in follow(self.folder):
            if view.state.over or self.folder.attempt(view.attempt).keeper.exists():
                break
        return look(self.folder)

    def collect(self, into: str | Path, *, checkpoints: str = "newest", only: str = "") -> Path:
        """Copy the results of the run into a new folder; see `torusrun collect --help`."""
        from torusrun.orchestrator.base.terminal.remarks import warn
        from torusrun.orchestrator.upkeep.collect import collect

        return collect(self.folder, Path(into), checkpoints, warn, patterns.parse_list(only))

    def export(self, into: str | Path, kind: str = "csv") -> Path:
        """Write the metrics as a file into the folder `into`/RUN, replacing an earlier file; the file's absolute path.

        `kind` is "csv" or "tensorboard" (needs tensorboard). Raises UserError if the run
        has recorded no steps, or if the package is missing.
        """
        from torusrun.orchestrator.show import exported

        return exported.write(self.id, self.metrics(), Path(into), kind)

    def report(self, path: str | Path, *, force: bool = False) -> Path:
        """Write one HTML file about the run; its absolute path. Raises UserError if it exists, unless with `force`."""
        from torusrun.orchestrator.show.page import document

        return document.write(document.check(Path(path), force=force), self._page())

    def _page(self) -> str:
        from torusrun.orchestrator.show.page import document

        return document.html([self.folder])


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
        return find_sweep(self.id)[1]

    @property
    def runs(self) -> list[Run]:
        """Its members."""
        return [Run(folder) for folder in self.folders]

    def status(self) -> list[View]:
        """The current view of each member. It queries the scheduler if necessary."""
        return views(self.folders)

    def results(self) -> list[dict[str, float]]:
        """The newest value of each metric of each member."""
        from torusrun.orchestrator.sweeps.table import results

        return [results(folder) for folder in self.folders]

    def settings(self) -> list[dict[str, str]]:
        """The settings in which the members differ, by number. Raises SiteError if the sweep is damaged."""
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
        memory: str | None = None,
        force: bool = False,
    ) -> list[Run]:
        """Submit a new attempt of each member that is over and not COMPLETED, together; these members.

        The changes are those of `Run.resume`. Raises the errors of `sweeps.resume.resume`.
        """
        return self._resume(changes(time, nodes, grid, exclude, memory), force)

    def _resume(self, made: Changes, force: bool) -> list[Run]:
        from torusrun.orchestrator.sweeps.resume import resume as resume_members

        return [Run(folder) for folder in resume_members(self.folder, self.folders, made, force=force)]

    def wait(self, timeout_s: float | None = None) -> list[View]:
        """Wait until all members are over; their last views. Raises TimeoutError as `Run.wait` does."""
        until_s = monotonic() + (float("inf") if timeout_s is None else timeout_s)
        last: list[View] = []
        with closing(self._follow()) as followed:
            for last in followed:
                left = sum(not view.state.over for view in last)
                if left and monotonic() > until_s:
                    raise TimeoutError(f"{counted(left, 'run')} of {self.id} not over after {timeout_s:g} s")
        return last

    def _follow(self) -> Generator[list[View], None, None]:
        yield from follow_all(self.folders)
