"""Attempts of a sweep's members, in the batches in which they are submitted: arrays of jobs, and single jobs.

The tasks of an array have one request. So members with another request are in another array. A run that keeps going
is an array of its own, this machine has no arrays, and PBS refuses an array of one job: such members are single jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.private import FOLDER
from torusrun.orchestrator.base.version import __version__
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.run.attempts.script import LOOP, python_path, script
from torusrun.orchestrator.run.attempts.submit import intent, request_of
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Submitting
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.folder.sweep_folder import ArrayFolder, SweepFolder
from torusrun.orchestrator.run.plan.attempt_plan import AttemptPlan
from torusrun.orchestrator.run.state import next_attempt
from torusrun.orchestrator.run.state.awaited import Awaited
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.schedulers.interface import Request
from torusrun.orchestrator.schedulers.script import job_script

Planned = tuple[RunFolder, AttemptPlan]


@dataclass(frozen=True)
class AtWork:
    """The arrays of which `tasks` are not over, and the last jobs of the other members, oldest first."""

    arrays: tuple[str, ...] = ()
    tasks: int = 0
    singles: tuple[str, ...] = ()

    def beside(self, at_once: int) -> tuple[int, AtWork]:
        """(how many more members may run at the same time, the members that they wait for).

        If all of `at_once` places may be taken by tasks, further members wait for the end of these arrays.
        """
        free = at_once - self.tasks
        return (free, replace(self, arrays=())) if free > 0 else (at_once, self)


NOBODY = AtWork()


def at_work(seen: Sequence[View]) -> AtWork:
    """The jobs of those members that are not over, by their views."""
    arrays: dict[str, None] = {}
    singles: list[str] = []
    tasks = 0
    for view in sorted(seen, key=lambda view: view.submitted_s or 0.0):
        if view.state.over or view.job is None:
            continue
        events = ledger.events(RunFolder(Path(view.folder)).ledger)
        intent = ledger.last(events, Submitting, view.attempt)
        if intent and intent.task is not None:
            arrays[schedulers.get(view.scheduler).array_of(view.job)] = None
            tasks += 1
        else:
            jobs = next_attempt.jobs_of(events, view.attempt)
            singles.append(jobs[-1] if jobs else view.job)
    return AtWork(tuple(arrays), tasks, tuple(singles))


@dataclass(frozen=True)
class MemberAttempt:
    """An attempt of a member, with its script and the event before its submission."""

    run: RunFolder
    planned: AttemptPlan
    script: str
    event: Submitting

    @property
    def attempt(self) -> Attempt:
        return self.run.attempt(self.planned.number)


@dataclass(frozen=True)
class Batch:
    """Attempts that one command submits with one request: the tasks of an `array`, or a single job."""

    attempts: tuple[MemberAttempt, ...]
    asked: Request
    array: ArrayFolder | None = None

    @property
    def site(self) -> Site:
        return self.attempts[0].planned.plan.site

    def script_path(self) -> Path:
        return self.array.script if self.array else self.attempts[0].attempt.script

    def text(self, after_any: Sequence[str] = ()) -> str:
        """The script for the scheduler; the job begins only after these jobs have ended."""
        asked, first = self.after(after_any), self.attempts[0]
        if not self.array:
            return script(first.planned, first.attempt, asked)
        plan = first.planned.plan
        return job_script(
            plan.site,
            asked,
            attempt=self.array.folder,
            entry=process.module(plan.python, LOOP, "--task", self.array.folder, plan.site.scheduler),
            title=f"torusrun {__version__}: {len(self.attempts)} members of the sweep {asked.name}",
            environment=python_path(),
            umask=plan.site.umask,
            loads=False,
            records_end=False,
        )

    def after(self, after_any: Sequence[str]) -> Request:
        """The request of a job that begins only after these jobs, too, have ended."""
        return replace(self.asked, after_any=(*self.asked.after_any, *after_any))

    def make(self, folder: ArrayFolder) -> None:
        """Make the folder of the array at `folder`, with all that its tasks read."""
        folder.folder.mkdir(parents=True, mode=FOLDER)
        folder.write([member.attempt for member in self.attempts])


def batches(
    sweep: SweepFolder,
    members: Sequence[Planned],
    at_once: int,
    after: Sequence[Awaited] = (),
    first_array: int = 1,
) -> list[Batch]:
    """The batches of these attempts, in the order of their submission: arrays, then single jobs.

    The arrays are numbered from `first_array` on. Raises UserError if an attempt has no request.
    """
    together: dict[Request, list[Planned]] = {}
    alone: list[Planned] = []
    for run, planned in members:
        asked = request_of(planned, run, after)
        alike = replace(asked, name="", token="", stdout=Path(), stderr=Path())  # without what is of one run alone
        has_arrays = schedulers.get(planned.plan.site.scheduler).traits.has_arrays
        group = alone if planned.plan.keeps_going or not has_arrays else together.setdefault(alike, [])
        group.append((run, planned))
    made: list[Batch] = []
    for asked, group in together.items():
        most = group[0][1].plan.site.largest_array
        for part in (group[start : start + most] for start in range(0, len(group), most)):
            if len(part) == 1:
                alone += part
                continue
            array = sweep.array(first_array + len(made))
            made.append(_array(sweep, array, asked, part, at_once, after))
    return [*made, *(_single(run, planned, after) for run, planned in alone)]


def _array(
    sweep: SweepFolder,
    array: ArrayFolder,
    asked: Request,
    members: Sequence[Planned],
    at_once: int,
    after: Sequence[Awaited],
) -> Batch:
    asked = replace(
        asked,
        name=sweep.sweep_id,
        token=f"{sweep.sweep_id}-{array.folder.name}",  # a member's own job is called SWEEP.MEMBER.ATTEMPT
        stdout=array.stdout,
        stderr=array.stderr,
        array=len(members),
        parallel=at_once if at_once < len(members) else 0,
    )
    prepared = []
    for task, (run, planned) in enumerate(members):
        own = request_of(planned, run, after)
        text = script(planned, run.attempt(planned.number), own, held=True)
        prepared.append(MemberAttempt(run, planned, text, intent(planned, asked, after, task=task)))
    return Batch(tuple(prepared), asked, array)


def _single(run: RunFolder, planned: AttemptPlan, after: Sequence[Awaited]) -> Batch:
    asked = request_of(planned, run, after)
    text = script(planned, run.attempt(planned.number), asked)
    return Batch((MemberAttempt(run, planned, text, intent(planned, asked, after)),), asked)
