"""The verbs for Python: `run = orchestrator.submit("run.yaml"); run.wait(); run.metrics()`."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from orchestrator import schedulers
from orchestrator.attempts import create
from orchestrator.errors import SiteError, TorusrunError, UserError
from orchestrator.images import run_image
from orchestrator.plans.plan import Plan, plan, read_plan
from orchestrator.runs import claim, index, ledger, lock, metrics
from orchestrator.runs.collect import collect
from orchestrator.runs.events import CancelRequested, Started
from orchestrator.runs.folder import RunFolder
from orchestrator.schedulers.client import Client
from orchestrator.spec.paths import absolute
from orchestrator.states import State
from orchestrator.watch.follow import follow
from orchestrator.watch.poll import views
from orchestrator.watch.view import View, read_record
from training.checkpoint.manifest import Checkpoint, newest_complete

LOOK_S = 0.2
NOTICED_S = 10.0  # for the supervisor to hear of a cancellation through the file system, and the others of an end
FORCE = "if you know that it is not at work any more, resume it with --force"


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
        """The newest complete checkpoint."""
        return newest_complete(self.folder.checkpoints)

    def cancel(self) -> None:
        """End the run, after a checkpoint if its ranks are at work. Raises UserError when it is over already."""
        index.own(self.folder)
        view = self.status()
        if view.state.over:
            raise UserError(f"{self.id} is over already: {view.state.value}, {view.reason}")
        if view.job is None:
            raise UserError(f"{self.id} has no known job to cancel: {view.reason}")
        ledger.append(self.folder.ledger, CancelRequested(view.attempt))
        if not self._ends_by_itself(view):
            Client(schedulers.get(view.scheduler), self.plan.site.command_timeout_s).cancel(view.job)

    def _ends_by_itself(self, view: View) -> bool:
        """Give an attempt that has begun the time to write its checkpoint; whether it came to its end in that time.

        Were its job ended at once, not every scheduler would leave its processes the time.
        """
        if not ledger.last(ledger.events(self.folder.ledger), Started, view.attempt):
            return False
        until_s = monotonic() + self.plan.site.kill_after_s + NOTICED_S
        while monotonic() < until_s:
            if self.folder.attempt(view.attempt).end.exists():
                return True
            sleep(LOOK_S)
        return False

    def resume(self, *, time: str | None = None, force: bool = False, new_image: bool = False) -> Checkpoint | None:
        """Submit the next attempt, with another time limit if asked; the checkpoint it goes on from, None for step 0.

        Raises UserError when the run is COMPLETED, or when it is not certain that its newest attempt is over. `force`
        says that the user knows better: should that attempt be at work all the same, it ends when the new one begins,
        and no two of them train at once (runs/claim.py).
        """
        index.own(self.folder)
        with lock.alone(self.folder):
            return self._resume(time, force, new_image)

    def _resume(self, time: str | None, force: bool, new_image: bool) -> Checkpoint | None:
        view = self.status()
        if view.state is State.COMPLETED:
            raise UserError(f"{self.id} is COMPLETED: there is nothing left to resume")
        if not force and (why := self._uncertain(view)):
            raise UserError(f"{self.id} is {view.state.value} ({view.reason or f'attempt {view.attempt}'}): {why}")
        self._same_image(new_image)
        checkpoint = self.checkpoint()
        plan = create.with_time(self.plan, time) if time else self.plan
        resumes = checkpoint.path.name if checkpoint else None
        create.start(plan, self.folder, view.attempt + 1, resumes=resumes)
        if not view.state.over and view.job:  # its user says that it is gone; what is left of it is not to hold nodes
            with contextlib.suppress(SiteError):
                Client(schedulers.get(view.scheduler), plan.site.command_timeout_s).cancel(view.job)
        return checkpoint

    def _uncertain(self, view: View) -> str:
        """Why the newest attempt may still be at work, and what to do; '' when it certainly is not."""
        at_work = claim.held(self.folder.attempt(view.attempt))
        if at_work and view.state.over:
            return f"processes of its ranks are still at work; ask again in a moment, or {FORCE}"
        if view.state in (State.PENDING, State.RUNNING):
            return f"resume it once it is over, or cancel it first; {FORCE}"
        if view.state is State.UNKNOWN:
            return f"ask again later, or, {FORCE}"
        begun = ledger.last(ledger.events(self.folder.ledger), Started, view.attempt)
        if view.state is State.LOST and view.job and not (begun and at_work is False):
            return f"nobody can say that its job is gone; {FORCE}"
        return ""

    def _same_image(self, new_image: bool) -> None:
        """Raises UserError when the run's image is not the one it began with, unless a new one is meant."""
        kept = run_image.kept(self.folder)
        if kept and new_image:
            fitting = run_image.fitting(self.plan)
            run_image.keep(self.folder, fitting or kept)
        elif kept and (how := run_image.changed(kept)):
            raise UserError(
                f"{kept.path} is not the image that {self.id} began with: {how}; --new-image takes it as it is"
            )

    def collect(self, into: str | Path, *, checkpoints: str = "newest") -> Path:
        """Copy what is worth keeping into a new folder; see `torusrun collect --help`."""
        return collect(self.folder, Path(into), checkpoints)


def submit(
    path: str | Path, *, site: str | None = None, settings: Sequence[str] = (), after: Sequence[str] = ()
) -> Run:
    """Submit the run file at `path`, to begin once the runs `after` are COMPLETED.

    Raises UserError for what is written wrong, SiteError for what is refused.
    """
    planned = plan(path, site=site, settings=settings)
    awaited = _awaited(after, planned.site.scheduler)
    return Run(create.submit_first(planned, absolute(path).parent, awaited))


def _awaited(words: Sequence[str], scheduler: str) -> dict[str, Path]:
    """The jobs to wait for and their runs' folders. Raises UserError for a run that nothing can wait for."""
    awaited = {}
    for view in views([index.find(word) for word in words]):
        if view.state is State.COMPLETED:
            continue
        if view.state.over or view.job is None:
            raise UserError(f"{view.run} is {view.state.value} ({view.reason}): a run can only wait for one to come")
        if view.scheduler != scheduler:
            raise UserError(f"{view.run} is a job of {view.scheduler}: a job of {scheduler} cannot wait for it")
        awaited[view.job] = Path(view.folder)
    return awaited


def open_run(word: str) -> Run:
    """A run by its id, the beginning of its id, its folder, or 'last'."""
    return Run(index.find(word))


__all__ = ["Checkpoint", "Plan", "Run", "State", "TorusrunError", "View", "open_run", "plan", "submit"]
