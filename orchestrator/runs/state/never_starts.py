"""A job that waits for another job, which ended before it began. The scheduler never starts such a job."""

from __future__ import annotations

from orchestrator.base.states import Status, never_starts
from orchestrator.runs.state import dependencies
from orchestrator.runs.state.view import Record


def held(record: Record, job: Status | None) -> Status | None:
    """The scheduler's state of the run's job, with advice if the job would be held forever."""
    run = (
        dependencies.ended_before_it_began(record.events, record.attempt) if job and job.held and record.mine else None
    )
    if job is None or run is None:
        return job
    advice = f"{run} ended before it began: cancel this run, and submit it again"
    return never_starts(f"{job.reason}, and {advice}")
