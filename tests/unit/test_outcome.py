"""The state of a run from what was said about it, and the cause of an attempt's end from its ranks' ends."""

import pytest

from orchestrator.job.verdict import StopRequest, verdict
from orchestrator.runs.ledger import Event
from orchestrator.runs.outcome import resolve
from orchestrator.runs.records import End, RankEnd
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


def good(rank: int) -> RankEnd:
    return RankEnd(rank, "n1", rank, 5.0, exit_code=0)


def test_all_ranks_well_is_completed_even_when_asked_to_stop() -> None:
    stop = StopRequest(State.TIMEOUT, "time limit", certain=True)
    assert verdict(2, [good(0), good(1)], stop, 0, "", "", done=True).state is State.COMPLETED


def test_ranks_that_end_well_without_a_record_of_the_training_are_not_completed() -> None:
    """A program of another's, in the place of the training, ends well too."""
    end = verdict(2, [good(0), good(1)], None, 0, "", "", done=False)
    assert end.state is State.FAILED and "did not record that it is done" in end.reason


def test_the_killed_rank_is_the_cause_and_those_that_followed_are_not() -> None:
    followed = [RankEnd(r, "n1", r, 4.0, exit_code=1) for r in (0, 1, 2)]
    end = verdict(4, [*followed, RankEnd(3, "n2", 1, 4.5, signal=9)], None, 137, "Traceback", " after step 57")
    assert end == End(State.FAILED, "rank 3 (n2, local rank 1) was killed by SIGKILL after step 57", certain=False)


def test_a_rank_that_was_told_to_end_is_not_the_cause_however_it_ended() -> None:
    """A rank that is already leaving dies of the launcher's SIGTERM, where the others still catch it."""
    followed = RankEnd(2, "n1", 2, 3.0, signal=15, told=True)
    end = verdict(2, [RankEnd(0, "n1", 0, 4.0, exit_code=74), followed], None, 74, "no space left", "")
    assert end.reason == "rank 0 (n1, local rank 0) ended with exit code 74: no space left"


def test_the_first_of_the_failed_ranks_is_quoted() -> None:
    ends = [RankEnd(0, "n1", 0, 9.0, exit_code=1), RankEnd(1, "n1", 1, 8.0, exit_code=1)]
    end = verdict(2, ends, None, 1, "ValueError: no such data", "")
    assert end.reason == "rank 1 (n1, local rank 1) ended with exit code 1: ValueError: no such data"


def test_a_lost_checkpoint_is_told_by_the_rank_that_knows_why_whichever_ends_first() -> None:
    ends = [RankEnd(0, "n1", 0, 5.0, exit_code=74), RankEnd(1, "n1", 1, 4.9, exit_code=74)]
    assert verdict(2, ends, None, 74, "No space left", "").reason.startswith("rank 0 (n1, local rank 0) ended with")


def test_a_misplaced_rank_is_the_cause_before_anything_else() -> None:
    ends = [RankEnd(0, "n1", 0, 1.0, signal=15), RankEnd(1, "n2", 0, 9.0, error="rank 1 stands on n2")]
    assert "did not start: rank 1 stands on n2" in verdict(2, ends, None, 1, "", "").reason


def test_ranks_without_a_record_are_named_and_the_end_is_not_certain() -> None:
    end = verdict(3, [good(0)], None, -9, "", "")
    assert "ranks 1, 2 left no record" in end.reason and "SIGKILL" in end.reason
    assert not end.certain, "a lost node looks like this, and the scheduler knows better"


def test_ranks_that_stopped_after_a_checkpoint_are_no_failure() -> None:
    stop = StopRequest(State.TIMEOUT, "its time limit of 60 s is near", certain=True)
    ends = [RankEnd(r, "n1", r, 1.0, exit_code=75) for r in range(2)]
    assert verdict(2, ends, stop, 75, "", " after step 9") == End(
        State.TIMEOUT, "its time limit of 60 s is near after step 9"
    )


def test_ranks_that_all_stopped_though_nobody_here_asked_were_asked_from_outside() -> None:
    ends = [RankEnd(r, "n1", r, 1.0, exit_code=75) for r in range(2)]
    end = verdict(2, ends, None, 75, "", " after step 9")
    assert end == End(State.CANCELLED, "the ranks were told to stop from outside after step 9", certain=False)
