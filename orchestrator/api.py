"""The verbs for Python: `run = orchestrator.submit("run.yaml"); run.wait(); run.metrics()`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from orchestrator.attempts.beside import shell
from orchestrator.attempts.cancel import cancel
from orchestrator.attempts.held import find as find_held
from orchestrator.attempts.hold import duration
from orchestrator.attempts.hold import hold as make_hold
from orchestrator.attempts.resume import resume
from orchestrator.attempts.submit import first as submit_first
from orchestrator.dryrun.look import DryRun
from orchestrator.dryrun.look import dry_run as look_ahead
from orchestrator.errors import TorusrunError, UserError
from orchestrator.plans.attempt import changes
from orchestrator.plans.kept import read_plan
from orchestrator.plans.plan import Plan, plan
from orchestrator.runs import index, metrics
from orchestrator.runs.collect import collect
from orchestrator.runs.folder import RunFolder
from orchestrator.spec.paths import absolute
from orchestrator.states import State
from orchestrator.watch.follow import follow
from orchestrator.watch.fresh import look, once_held, to_wait_for
from orchestrator.watch.poll import views
from orchestrator.watch.view import View, read_record
from training.checkpoint.manifest import Checkpoint, newest_complete


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


def submit(
    path: str | Path,
    *,
    site: str | None = None,
    settings: Sequence[str] = (),
    after: Sequence[str] = (),
    after_any: Sequence[str] = (),
    held: str = "",
) -> Run:
    """Submit the run file at `path`, to begin once the runs `after` are COMPLETED and the runs `after_any` are over.

    It runs in the held allocation `held`, or in a job of its own. Raises UserError for what is written wrong, SiteError
    for what is refused.
    """
    planned = plan(path, site=site, settings=settings)
    return submit_planned(planned, path, after=after, after_any=after_any, held=held)


def submit_planned(
    planned: Plan, path: str | Path, *, after: Sequence[str] = (), after_any: Sequence[str] = (), held: str = ""
) -> Run:
    """Submit the plan of the run file at `path`, as `submit` does."""
    if held:
        if after or after_any:
            raise UserError("an attempt in a held allocation waits for those before it there: leave out --after")
        return Run(submit_first(planned, absolute(path).parent, into=find_held(held, look)))
    return Run(submit_first(planned, absolute(path).parent, to_wait_for(planned.site.scheduler, after, after_any)))


def hold(
    path: str | Path,
    *,
    time: str | None = None,
    idle: str = "20m",
    name: str | None = None,
    site: str | None = None,
    settings: Sequence[str] = (),
) -> Run:
    """Ask for what the run file at `path` asks for, and hold it for attempts: `submit(..., held=run.id)` starts one.

    It is held for `time` ('2h'; default: the file's), and given back after `idle` without an attempt at work. Raises as
    `submit` does.
    """
    planned = plan(path, site=site, settings=settings)
    time_s = duration("--time", time) if time else None
    return Run(make_hold(planned, absolute(path).parent, time_s, duration("--idle", idle), name))


def dry_run(
    path: str | Path,
    *,
    site: str | None = None,
    settings: Sequence[str] = (),
    after: Sequence[str] = (),
    after_any: Sequence[str] = (),
) -> DryRun:
    """What `submit` would submit and what its job would run; nothing is written. Raises as `submit` does."""
    planned = plan(path, site=site, settings=settings)
    return look_ahead(planned, to_wait_for(planned.site.scheduler, after, after_any))


def open_run(word: str) -> Run:
    """A run by its id, the beginning of its id, its folder, or 'last'."""
    return Run(index.find(word))


__all__ = [
    "Checkpoint",
    "DryRun",
    "Plan",
    "Run",
    "State",
    "TorusrunError",
    "View",
    "dry_run",
    "hold",
    "open_run",
    "plan",
    "submit",
]
