"""The state of a job array as a whole, from the states of its tasks, and of jobs of one run that work in turn."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from torusrun.orchestrator.base.states import State, Status

DIGITS = 20  # more than any number in an id has


def with_arrays(found: Mapping[str, Status], array_of: Callable[[str], str | None]) -> dict[str, Status]:
    """The states by job id, and those of the arrays under their own ids. `array_of` is the array of a task's id.

    Schedulers list tasks in any order: squeue by their states.
    """
    tasks: dict[str, list[Status]] = {}
    for job_id in sorted(found, key=_numbers):
        if array := array_of(job_id):
            tasks.setdefault(array, []).append(found[job_id])
    return {**found, **{array: whole(*states) for array, states in tasks.items()}}


def _numbers(job_id: str) -> list[str]:
    """The numbers in an id, by which the tasks of an array are in order."""
    return [number.zfill(DIGITS) for number in re.findall("[0-9]+", job_id)]


def whole(*tasks: Status) -> Status:
    """The state of tasks or jobs in their order: of a running one, else a waiting one, else the last with hosts."""
    for state in (State.RUNNING, State.PENDING, State.UNKNOWN):
        if status := next((task for task in tasks if task.state is state), None):
            return status
    ran = [task for task in tasks if task.hosts]
    return ran[-1] if ran else tasks[-1]
