"""The state of a job array as a whole, from the states of its tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from orchestrator.base.states import State, Status


def with_arrays(found: Mapping[str, Status], array_of: Callable[[str], str | None]) -> dict[str, Status]:
    """The states by job id, and those of the arrays under their own ids. `array_of` is the array of a task's id.

    `found` has the tasks of an array in order.
    """
    tasks: dict[str, list[Status]] = {}
    for job_id, status in found.items():
        if array := array_of(job_id):
            tasks.setdefault(array, []).append(status)
    return {**found, **{array: whole(*states) for array, states in tasks.items()}}


def whole(*tasks: Status) -> Status:
    """The state of an array: of a running task, else of a waiting one, else of the last that had hosts."""
    for state in (State.RUNNING, State.PENDING, State.UNKNOWN):
        if status := next((task for task in tasks if task.state is state), None):
            return status
    ran = [task for task in tasks if task.hosts]
    return ran[-1] if ran else tasks[-1]
