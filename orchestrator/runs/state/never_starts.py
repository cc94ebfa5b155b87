"""A job that is held for others, one of which never began: its scheduler never starts it."""

from __future__ import annotations

from orchestrator.base.states import Status, never_starts
from orchestrator.runs.state import dependencies
from orchestrator.runs.state.view import Record


def held(record: Record, job: Status | None) -> Status | None:
    """What the scheduler says of the run's job, with what to do where it would be held for ever."""
    run = (
        dependencies.ended_before_it_began(record.events, record.attempt) if job and job.held and record.mine else None
    )
    if job is None or run is None:
        return job
    advice = f"{run} ended before it began: cancel this run, and submit it again"
    return never_starts(f"{job.reason}, and {advice}")
