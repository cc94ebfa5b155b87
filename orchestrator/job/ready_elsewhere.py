"""Waits at the start of an attempt for roles of other runs to be ready, and gives the attempt their places.

No scheduler knows when a program is ready, so this waits within the job, until its time limit at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.run.folder import attempt_folders, ledger
from torusrun.orchestrator.run.folder.events import Ended, Submitting
from torusrun.orchestrator.run.folder.how_ended import How, ended
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.plan import Plan

LOOK_S = 1.0


def beside_ready(plan: Plan, run: RunFolder, asked: Callable[[], End | None]) -> Plan | End:
    """The plan with the places of all roles that its run waits for, once they are ready; else the attempt's end.

    `asked` returns the end if the attempt has to stop.
    """
    first = ledger.last(ledger.events(run.ledger), Submitting, 1)
    given: dict[str, str] = {}
    for role, folder in (first.after_ready if first else {}).items():
        other = RunFolder(Path(folder))
        while not (place := _place(other, role)):
            if end := asked() or _over(other):
                return end
            time.sleep(LOOK_S)
        given |= place
    roles = {name: replace(role, env={**role.env, **given}) for name, role in plan.run.roles.items()}
    return replace(plan, run=replace(plan.run, env={**plan.run.env, **given}, roles=roles)) if given else plan


def _place(run: RunFolder, role: str) -> dict[str, str]:
    """The variables with the place of a role in the newest attempt of a run; {} if the role is not ready."""
    from torusrun.orchestrator.job.ranks.meeting import meeting
    from torusrun.orchestrator.job.ranks.roles import is_ready
    from torusrun.orchestrator.run.program.what_runs import facts, role_environment

    numbers = attempt_folders.attempts(run)
    attempt = run.attempt(numbers[-1] if numbers else 1)
    if attempt.end.exists() or not is_ready(attempt, role):
        return {}
    placement = attempt_folders.placement(attempt)
    slots = placement.of_role(role) if placement else ()
    return role_environment(role, facts((slot.host for slot in slots), *meeting(attempt.role_place(role))))


def _over(run: RunFolder) -> End | None:
    """The end of an attempt that waits for this run, if this run is over."""
    numbers = attempt_folders.attempts(run)
    if not numbers:
        return ended(How.DROPPED, awaited=run.run_id, state="gone")
    end = End.read(run.attempt(numbers[-1]).end)
    state: State | None = end.state if end and not end.kept_going else None
    noted = None if end else ledger.last(ledger.events(run.ledger), Ended, numbers[-1])
    state = noted.state if noted else state
    return ended(How.DROPPED, awaited=run.run_id, state=state.value) if state else None
