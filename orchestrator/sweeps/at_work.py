"""The jobs of the members of a sweep that are not over: those that are submitted again count with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Submitting
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state import next_job
from torusrun.orchestrator.run.state.view import View


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
    for view in sorted(seen, key=lambda one: one.submitted_s or 0.0):
        if view.state.over or view.job is None:
            continue
        events = ledger.events(RunFolder(Path(view.folder)).ledger)
        intent = ledger.last(events, Submitting, view.attempt)
        if intent and intent.task is not None:
            arrays[schedulers.get(view.scheduler).array_of(view.job)] = None
            tasks += 1
        else:
            jobs = next_job.jobs_of(events, view.attempt)
            singles.append(jobs[-1] if jobs else view.job)
    return AtWork(tuple(arrays), tasks, tuple(singles))
