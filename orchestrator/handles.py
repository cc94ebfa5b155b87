"""A run as Python has it: one of this machine, and one on a login node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

from orchestrator.attempts.beside import shell
from orchestrator.attempts.cancel import cancel
from orchestrator.attempts.held import find as find_held
from orchestrator.attempts.resume import resume
from orchestrator.errors import UserError
from orchestrator.plans.attempt import changes
from orchestrator.plans.kept import read_plan
from orchestrator.plans.plan import Plan
from orchestrator.remote import known as known_runs
from orchestrator.remote.known import Known
from orchestrator.remote.replies import HeldThere, Nothing, Resumed, Rows
from orchestrator.runs import metrics
from orchestrator.runs.collect import collect
from orchestrator.runs.folder import RunFolder
from orchestrator.watch.follow import follow
from orchestrator.watch.fresh import look, once_held
from orchestrator.watch.poll import views
from orchestrator.watch.view import View, read_record
from training.checkpoint.manifest import Checkpoint, newest_complete

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Run:
    """A run that was submitted: a handle on its folder, which is the truth about it."""

    folder: RunFolder

    @property
    def id(self) -> str:
        return self.folder.run_id

    @property
    def plan(self) -> Plan:
        return read_plan(self.folder, read_record(self.folder).attempt)

    def status(self) -> View:
        """How the run stands now, the scheduler asked where need be."""
        return views([self.folder])[0]

    def wait(self, timeout_s: float | None = None) -> View:
        """Wait until the run is over; its last view. Raises TimeoutError when that takes longer than `timeout_s`."""
        until_s = monotonic() + (float("inf") if timeout_s is None else timeout_s)
        for view in follow(self.folder):
            if not view.state.over and monotonic() > until_s:
                raise TimeoutError(f"{self.id} is still {view.state.value} after {timeout_s:g} s")
        return view

    def metrics(self) -> list[dict[str, Any]]:
        """Everything rank 0 measured, in order, over all attempts."""
        return metrics.read(self.folder.metrics)

    def checkpoint(self) -> Checkpoint | None:
        """The newest complete checkpoint of a training."""
        return newest_complete(self.folder.checkpoints)

    def cancel(self) -> None:
        """End the run, after a checkpoint if its ranks are at work. Raises UserError when it is over already."""
        cancel(self.folder, look)

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
        """Submit the next attempt; the checkpoint from which it goes on, None for the beginning.

        `time` ('2h'), `nodes` and `grid` ('4x2') hold for this attempt and those after it; these are not given the
        hosts in `exclude` ('n3', 'n[3-5]'). It runs in the held allocation `held`, or in a job of its
        own. Raises UserError as `attempts.resume.resume` does.
        """
        made = changes(time, nodes, grid, exclude)
        into = find_held(held, look) if held else None
        return resume(self.folder, look, made, force=force, new_image=new_image, into=into)

    def shell(self, *command: str, rank: int = 0, terminal: bool = False) -> int:
        """Run a command, or a shell, beside a rank at work, in its image; its exit code.

        What it reads and writes is this process's own. Raises UserError when the run is not at work.
        """
        return shell(self.folder, rank, command, look, terminal=terminal)

    def wait_until_held(self) -> View:
        """Wait until a held allocation takes attempts, or is over; its last view."""
        return once_held(self.folder)

    def collect(self, into: str | Path, *, checkpoints: str = "newest") -> Path:
        """Copy what is worth keeping into a new folder; see `torusrun collect --help`."""
        return collect(self.folder, Path(into), checkpoints)


class RunThere(Run):
    """A run on a login node: the same functions, each over a connection of its own.

    Those that need its folder raise UserError: `collect` copies it here.
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
        from orchestrator.remote import status

        return status.views([self.known])[0]

    def wait(self, timeout_s: float | None = None) -> View:
        from orchestrator.remote.feed import Feed

        until_s = monotonic() + (float("inf") if timeout_s is None else timeout_s)
        with Feed([self.known]) as feed:
            for (view,) in feed.follow():
                if not view.state.over and monotonic() > until_s:
                    raise TimeoutError(f"{self.id} is still {view.state.value} after {timeout_s:g} s")
        return view

    def metrics(self) -> list[dict[str, Any]]:
        return [dict(row) for row in self._ask(Rows, "metrics").rows]

    def cancel(self) -> None:
        self._ask(Nothing, "cancel")

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
        changed = {"time": time, "nodes": nodes, "grid": grid, "exclude": list(exclude)}
        held = known_runs.held_on(self.known.host, held)
        how = {"force": force, "new_image": new_image, "held": held}
        origin = self._ask(Resumed, "resume", {"changes": changed, **how}).origin
        return Path(origin) if origin else None

    def shell(self, *command: str, rank: int = 0, terminal: bool = False) -> int:
        from orchestrator.remote.interactive import shell as shell_there

        return shell_there(self.known, rank, command, terminal=terminal)

    def wait_until_held(self) -> View:
        from orchestrator.remote.status import view_of

        return view_of(self.known, self._ask(HeldThere, "held", within_s=float("inf")).view)

    def collect(self, into: str | Path, *, checkpoints: str = "newest") -> Path:
        from orchestrator.remote.collect import collect as collect_there

        return collect_there(self.known, Path(into), checkpoints)

    def _ask(
        self, kind: type[Kind], what: str, values: Mapping[str, Any] | None = None, within_s: float | None = None
    ) -> Kind:
        from orchestrator.remote import asking, verbs
        from orchestrator.remote.session import Lasting

        limit_s = asking.LONGEST_S if within_s is None else within_s
        with Lasting(self.known.host, verbs.PATIENCE_S) as link:
            return asking.answer(link, {"do": what, "run": self.id, **(values or {})}, kind, within_s=limit_s)
