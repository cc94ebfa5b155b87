"""The state of a run from what was said about it."""

import pytest

from orchestrator.runs.ledger import Event
from orchestrator.runs.outcome import resolve
from orchestrator.runs.records import End
from orchestrator.states import State, Status

NOW_S = 1000.0
SUBMITTED = Event(1.0, "submitted", 1, {"job": "7"})
CANCELLED = Event(2.0, "cancel_requested", 1, {})
GONE = Status(State.LOST, "it has left the queue")
SIGTERMED = End(State.CANCELLED, "told to end by SIGTERM from outside", certain=False)


@pytest.mark.parametrize(
    ("events", "end", "job", "state", "says"),
    [
        ([SUBMITTED], End(State.COMPLETED, "all well"), GONE, State.COMPLETED, "all well"),
        ([SUBMITTED], None, GONE, State.LOST, "left no record of its end"),
        ([SUBMITTED, CANCELLED], None, GONE, State.CANCELLED, "cancelled by its user"),
        ([SUBMITTED], None, Status(State.UNKNOWN, "squeue did not answer"), State.UNKNOWN, "did not answer"),
        ([SUBMITTED], None, Status(State.NODE_FAIL, "NodeDown"), State.NODE_FAIL, "NodeDown"),
        ([SUBMITTED], None, Status(State.FAILED, ""), State.FAILED, "the scheduler says FAILED"),
        ([SUBMITTED], SIGTERMED, Status(State.PREEMPTED, "by job 9"), State.PREEMPTED, "by job 9"),
        ([SUBMITTED], SIGTERMED, Status(State.TIMEOUT, "accounting"), State.TIMEOUT, "SIGTERM from outside; acc"),
        ([SUBMITTED], SIGTERMED, Status(State.FAILED, "NonZeroExitCode"), State.CANCELLED, "SIGTERM"),
        ([SUBMITTED], SIGTERMED, GONE, State.CANCELLED, "SIGTERM"),
        ([SUBMITTED], SIGTERMED, Status(State.RUNNING), State.RUNNING, "ending: told to end"),
        ([SUBMITTED], None, Status(State.PENDING, "Resources"), State.PENDING, "Resources"),
        ([], None, None, State.UNKNOWN, "was cut off"),
        ([], SIGTERMED, None, State.CANCELLED, "told to end"),
    ],
)  # fmt: skip
def test_a_state_is_never_guessed(events, end, job, state: State, says: str) -> None:  # type: ignore[no-untyped-def]
    status = resolve(events, 1, end, job, NOW_S)
    assert status.state is state
    assert says in status.reason


def test_an_end_that_was_seen_once_stays_when_the_scheduler_forgets() -> None:
    seen = Event(3.0, "ended", 1, {"state": "TIMEOUT", "reason": "TimeLimit"})
    assert resolve([SUBMITTED, seen], 1, None, GONE, NOW_S) == Status(State.TIMEOUT, "TimeLimit")


def submitted(ago_s: float, kind: str = "submitted") -> Event:
    return Event(NOW_S - ago_s, kind, 1, {"job": "7", "scheduler": "pbs"})


def test_a_job_that_its_scheduler_does_not_show_yet_is_not_lost() -> None:
    for young in ([submitted(29.0)], [submitted(40.0, "submitting"), submitted(3.0)], [submitted(-5.0)]):
        status = resolve(young, 1, None, GONE, NOW_S)
        assert status.state is State.UNKNOWN, "resumed now, the run would have two attempts at once"
        assert "s ago; pbs does not show it yet" in status.reason
    assert resolve([submitted(29.0)], 1, None, GONE, NOW_S).reason.startswith("submitted 29 s ago")


def test_a_job_that_is_not_shown_is_lost_after_a_while_or_once_it_has_begun() -> None:
    started = Event(NOW_S - 1, "started", 1, {"job": "7", "hosts": ["n1"]})
    for old in ([submitted(30.0)], [submitted(5.0), started], [submitted(-1e6)]):
        assert resolve(old, 1, None, GONE, NOW_S).state is State.LOST
    cancelled = Event(NOW_S - 1, "cancel_requested", 1, {})
    assert resolve([submitted(5.0), cancelled], 1, None, GONE, NOW_S).state is State.CANCELLED
    assert resolve([submitted(5.0)], 1, SIGTERMED, GONE, NOW_S).state is State.CANCELLED
