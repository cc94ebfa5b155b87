"""The state of a run from what was said about it, what follows, and what a job that began again leaves of its end."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.run_folders import DONE, make, write_specs
from torusrun.orchestrator.base.states import Cause, State, Status
from torusrun.orchestrator.job.recorded import forget_first, recorded, settled_end
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import CancelRequested, Ended, Event, Started, Submitted, Submitting
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.decide import History, Policy, Resume, Stop, Wait, decide
from torusrun.orchestrator.run.state.depends import unmet
from torusrun.orchestrator.run.state.outcome import resolve
from torusrun.orchestrator.run.state.record import read_record

NOW_S = 1000.0
SUBMITTED = Submitted(1, "7", time_s=1.0)
CANCELLED = CancelRequested(1, time_s=2.0)
GONE = Status(State.LOST, "it has left the queue")
SIGTERMED = End(State.CANCELLED, "received SIGTERM from outside", certain=False)
BY_SCRIPT = End(State.FAILED, "the supervisor of the attempt was killed by SIGUSR2", certain=False)


@pytest.mark.parametrize(
    ("events", "end", "job", "state", "says"),
    [
        ([SUBMITTED], End(State.COMPLETED, "all well"), GONE, State.COMPLETED, "all well"),
        ([SUBMITTED], None, GONE, State.LOST, "left no record of its end"),
        ([SUBMITTED, CANCELLED], None, GONE, State.CANCELLED, "cancelled by its user"),
        ([SUBMITTED, CANCELLED], BY_SCRIPT, Status(State.FAILED, "100"), State.CANCELLED, "its user; the supervisor"),
        ([SUBMITTED, CANCELLED], BY_SCRIPT, None, State.CANCELLED, "cancelled by its user; the supervisor"),
        ([SUBMITTED], BY_SCRIPT, Status(State.FAILED, "100"), State.FAILED, "killed by SIGUSR2"),
        ([SUBMITTED, CANCELLED], End(State.FAILED, "rank 3 failed"), GONE, State.FAILED, "rank 3 failed"),
        ([SUBMITTED, CANCELLED], BY_SCRIPT, Status(State.OOM, "too much"), State.OOM, "too much"),
        ([SUBMITTED], None, Status(State.UNKNOWN, "squeue did not answer"), State.UNKNOWN, "did not answer"),
        ([SUBMITTED], None, Status(State.NODE_FAIL, "lost n1"), State.NODE_FAIL, "; `torusrun resume` continues"),
        ([SUBMITTED], None, Status(State.OOM, "too much"), State.OOM, "too much; ask for more: `resume --mem SIZE`"),
        ([SUBMITTED], None, Status(State.COMPLETED, "exit code 0"), State.LOST, "0, and the job left no record"),
        ([SUBMITTED], SIGTERMED, Status(State.COMPLETED, "exit code 0"), State.CANCELLED, "SIGTERM"),
        ([SUBMITTED, CANCELLED], None, Status(State.COMPLETED, "0"), State.CANCELLED, "cancelled by its user; 0"),
        ([SUBMITTED], None, Status(State.FAILED, ""), State.FAILED, "the scheduler says FAILED; `torusrun logs` shows"),
        ([SUBMITTED, CANCELLED], None, Status(State.CANCELLED, "by 7"), State.CANCELLED, "cancelled by its user; by 7"),
        ([SUBMITTED], SIGTERMED, Status(State.UNKNOWN, "no answer"), State.UNKNOWN, "SIGTERM from outside; no answer"),
        ([SUBMITTED], SIGTERMED, Status(State.PREEMPTED, "by job 9"), State.PREEMPTED, "by job 9"),
        ([SUBMITTED], SIGTERMED, Status(State.TIMEOUT, "accounting"), State.TIMEOUT, "SIGTERM from outside; acc"),
        ([SUBMITTED], SIGTERMED, Status(State.FAILED, "NonZeroExitCode"), State.CANCELLED, "SIGTERM"),
        ([SUBMITTED], SIGTERMED, GONE, State.CANCELLED, "SIGTERM"),
        ([SUBMITTED], SIGTERMED, Status(State.RUNNING), State.RUNNING, "ending: received SIGTERM"),
        ([SUBMITTED], None, Status(State.PENDING, "Resources"), State.PENDING, "Resources"),
        ([SUBMITTED], SIGTERMED, Status(State.PENDING, "REQUEUED"), State.PENDING, "D; before: received SIGTERM"),
        ([], None, None, State.UNKNOWN, "was cut off"),
        ([], SIGTERMED, None, State.CANCELLED, "received SIGTERM"),
    ],
)  # fmt: skip
def test_a_state_is_never_guessed(events, end, job, state: State, says: str) -> None:  # type: ignore[no-untyped-def]
    status = resolve(events, 1, end, job, NOW_S)
    assert status.state is state
    assert says in status.reason


@pytest.mark.parametrize(
    ("signal", "before", "state"),
    [("SIGTERM", "7", State.FAILED), ("SIGKILL", "7", State.OOM), ("SIGTERM", "6", State.OOM)],
)
def test_memory_that_an_earlier_attempt_of_the_job_lacked_is_not_counted_again(
    signal: str, before: str, state: State
) -> None:
    lacked = Ended(1, State.FAILED, "killed", Cause.KILLED, time_s=2.0)
    events = [Started(1, before, ("n1",)), lacked, Started(2, "7", ("n1",))]
    end = End(State.FAILED, "killed", certain=False, cause=Cause.KILLED, evidence={"signal": signal})
    assert resolve(events, 2, end, Status(State.OOM, "too much"), NOW_S).state is state


def test_an_end_that_was_recorded_stays_when_the_scheduler_forgets_the_job() -> None:
    seen = Ended(1, State.TIMEOUT, "TimeLimit", time_s=3.0)
    assert resolve([SUBMITTED, seen], 1, None, GONE, NOW_S) == Status(State.TIMEOUT, "TimeLimit")


def test_lost_says_what_it_means_and_what_to_do() -> None:
    reason = resolve([SUBMITTED], 1, None, GONE, NOW_S).reason
    assert reason == (
        "its job is gone, and no record says how it ended: it has left the queue, and the job left no record of its "
        "end; `torusrun logs` shows what it wrote; `torusrun resume` continues from the newest checkpoint "
        "(--force, if you know that its job is gone)"
    )
    never = resolve([Submitting(1, "x", time_s=1.0)], 1, None, GONE, NOW_S).reason
    assert never.startswith("nothing shows that it was ever submitted: ") and "`torusrun resume` submits it" in never


ENDED = Ended(1, State.CANCELLED, "scancel", time_s=3.0)


@pytest.mark.parametrize(
    ("events", "end", "job", "says"),
    [
        ([SUBMITTED], SIGTERMED, GONE, "CANCELLED, received SIGTERM from outside"),
        (
            [SUBMITTED], SIGTERMED, Status(State.TIMEOUT, "its limit"), "TIMEOUT, received SIGTERM from outside; its",
        ),
        ([SUBMITTED], None, Status(State.NODE_FAIL, "lost n1"), "NODE_FAIL, lost n1"),
        ([SUBMITTED], None, GONE, "LOST, its job is gone"),
        ([SUBMITTED, CANCELLED], None, GONE, "CANCELLED, cancelled by its user"),
        ([SUBMITTED, ENDED], None, None, "CANCELLED, scancel"),
        ([SUBMITTED], End(State.TIMEOUT, "its time limit is near"), None, "TIMEOUT, its time limit is near"),
        ([SUBMITTED], End(State.FAILED, "rank 1 was killed"), None, "FAILED, rank 1 was killed"),
        ([SUBMITTED], SIGTERMED, Status(State.UNKNOWN, "squeue did not answer"), "CANCELLED, received SIGTERM"),
        ([], SIGTERMED, None, "CANCELLED, received SIGTERM"),
    ],
)  # fmt: skip
def test_a_training_that_was_done_is_completed_however_its_job_ended(events, end, job, says: str) -> None:  # type: ignore[no-untyped-def]
    status = resolve(events, 1, end, job, NOW_S, done=True)
    assert status.state is State.COMPLETED
    assert status.reason.startswith(f"the training recorded that it is done; its job then ended with: {says}")
    assert resolve(events, 1, end, job, NOW_S).state is not State.COMPLETED


def test_a_training_that_was_done_runs_as_long_as_its_job() -> None:
    for end in (None, SIGTERMED):
        status = resolve([SUBMITTED], 1, end, Status(State.RUNNING, "node3 does not answer"), NOW_S, done=True)
        assert status.state is State.RUNNING
        assert status.reason.startswith("ending: ") and status.reason.endswith("; node3 does not answer")
    assert resolve([SUBMITTED], 1, None, Status(State.UNKNOWN, "?"), NOW_S, done=True).state is State.UNKNOWN
    completed = resolve([SUBMITTED], 1, End(State.COMPLETED, "all well"), None, NOW_S, done=True)
    assert completed == Status(State.COMPLETED, "all well")


def submitted(ago_s: float) -> Event:
    return Submitted(1, "7", "pbs", time_s=NOW_S - ago_s)


def test_a_job_that_its_scheduler_does_not_show_yet_is_not_lost() -> None:
    for young in ([submitted(29.0)], [Submitting(1, "x", time_s=NOW_S - 40.0), submitted(3.0)], [submitted(-5.0)]):
        status = resolve(young, 1, None, GONE, NOW_S)
        assert status.state is State.UNKNOWN, "resumed now, the run would have two attempts at once"
        assert "s ago; pbs does not show it yet" in status.reason
    assert resolve([submitted(29.0)], 1, None, GONE, NOW_S).reason.startswith("submitted 29 s ago")


def test_a_job_that_is_not_shown_is_lost_after_a_while_or_once_it_has_begun() -> None:
    started = Started(1, "7", ("n1",), time_s=NOW_S - 1)
    for old in ([submitted(30.0)], [submitted(5.0), started], [submitted(-1e6)]):
        assert resolve(old, 1, None, GONE, NOW_S).state is State.LOST
    cancelled = CancelRequested(1, time_s=NOW_S - 1)
    assert resolve([submitted(5.0), cancelled], 1, None, GONE, NOW_S).state is State.CANCELLED
    assert resolve([submitted(5.0)], 1, SIGTERMED, GONE, NOW_S).state is State.CANCELLED


# What follows for a run, by all that is known of it and by who asks.


ENDS_TO_RESUME = [state for state in State if state.over and state not in (State.COMPLETED, State.LOST)]
AT_WORK = "processes of its ranks are still at work"
IN_VAIN = Stop("made no progress")
NOT_CERTAIN = "it is not certain that its job is gone"


@pytest.mark.parametrize(
    ("state", "known", "step", "says"),
    [
        (State.COMPLETED, {}, Stop, "is COMPLETED: there is nothing left to resume"),
        (State.FAILED, {"held": True}, Stop, "held an allocation, and no run"),
        (State.FAILED, {}, Resume, ""),
        (State.FAILED, {"at_work": True}, Wait, AT_WORK),
        (State.FAILED, {"at_work": None}, Resume, ""),  # no lock can tell; its end is recorded
        (State.FAILED, {"again": False}, Stop, "its exit code forbids another attempt"),
        (State.PENDING, {"begun": False}, Wait, "is PENDING (so): resume it once it is over, or cancel it first"),
        (State.RUNNING, {"at_work": True}, Wait, "is RUNNING (so): resume it once it is over"),
        (State.UNKNOWN, {}, Wait, "is UNKNOWN (so): ask again later"),
        (State.LOST, {}, Resume, ""),  # it began, and its lock says that none of its ranks lives
        (State.LOST, {"at_work": None}, Wait, NOT_CERTAIN),
        (State.LOST, {"begun": False}, Wait, NOT_CERTAIN),
        (State.LOST, {"begun": False, "job": None}, Resume, ""),  # it was never submitted
    ],
)  # fmt: skip
def test_a_user_gets_another_attempt_once_it_is_certain_that_this_one_is_over(
    state: State, known: dict[str, Any], step: type, says: str
) -> None:
    found = decide(History(2, state, "so", **{"job": "7", **known}), Policy.USER)
    assert type(found) is step
    assert found == Resume(3) if isinstance(found, Resume) else says in found.why


@pytest.mark.parametrize("state", ENDS_TO_RESUME)
def test_every_end_but_that_of_a_run_that_is_done_can_be_resumed(state: State) -> None:
    assert decide(History(1, state, job="7"), Policy.USER) == Resume(2)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("known", [{"at_work": True}, {"begun": False}, {"again": False}, {"job": "7"}])
def test_a_user_who_forces_it_is_refused_only_what_is_done(state: State, known: dict[str, Any]) -> None:
    found = decide(History(1, state, **known), Policy.FORCED)
    assert isinstance(found, Stop) if state is State.COMPLETED else found == Resume(2)


@pytest.mark.parametrize(
    ("known", "step"),
    [
        ({"begun": False}, Resume(4)),  # it was submitted with this job
        ({}, Resume(5)),
        ({"hopeless": IN_VAIN}, IN_VAIN),
        ({"hopeless": IN_VAIN, "begun": False}, Resume(4)),
        ({"hopeless": IN_VAIN, "stopped": Cause.STOPPED}, Stop("was asked to stop")),
        ({"cancelled": True, "begun": False}, Stop("is cancelled by its user", by_user=True)),
        ({"stopped": Cause.STOPPED}, Stop("was asked to stop")),
        ({"state": State.COMPLETED}, Stop("is done")),
        ({"other_job": True, "cancelled": True}, Stop("continues in another job")),
    ],
)
def test_a_run_keeps_going_until_it_is_done_or_another_attempt_is_in_vain(
    known: dict[str, Any], step: Resume | Stop
) -> None:
    history = History(4, known.pop("state", State.FAILED), "so", **known)
    assert decide(history, Policy.KEEP_GOING) == step


def test_an_exit_code_that_forbids_another_attempt_ends_a_run_that_keeps_going() -> None:
    found = decide(History(4, State.FAILED, "so", again=False), Policy.KEEP_GOING)
    assert isinstance(found, Stop) and "its exit code forbids another attempt" in found.why


HISTORIES = st.builds(
    History, st.integers(1, 9), st.sampled_from(State), begun=st.booleans(),
    at_work=st.none() | st.booleans(), again=st.booleans(), cancelled=st.booleans(), held=st.booleans(),
    stopped=st.none() | st.sampled_from(Cause), other_job=st.booleans(),
    hopeless=st.sampled_from([None, IN_VAIN]),
)  # fmt: skip


@given(HISTORIES, st.sampled_from(Policy))
def test_whatever_is_known_no_two_attempts_work_at_once_unless_a_user_forces_it(
    history: History, policy: Policy
) -> None:
    step = decide(history, policy)
    if isinstance(step, Resume) and policy is Policy.USER:
        assert not history.at_work
    if isinstance(step, Resume) and policy is Policy.KEEP_GOING:
        assert not history.cancelled


# A job that its scheduler begins again, as by `scontrol requeue`, works for the same attempt.


TOLD = End(State.CANCELLED, "told to end by SIGTERM from outside", certain=False)


@pytest.fixture
def run(home: Path) -> RunFolder:
    """A run whose job was told to end from outside, and so does not know why."""
    made = make(write_specs(home), TOLD)
    made.ledger.write_text("".join(made.ledger.read_text().splitlines(keepends=True)[:-1]))
    return made


def test_what_the_first_start_left_says_nothing_of_the_second(run: RunFolder) -> None:
    assert settled_end(run, run.attempt(1)) is None
    forget_first(run, run.attempt(1))
    record = read_record(run)
    assert record.view(record.status(Status(State.RUNNING), time.time()), time.time()).reason == ""
    assert not run.attempt(1).ranks.exists(), "its records would be taken for those of the second one's ranks"


def test_the_first_start_may_still_be_about_to_record_its_end(run: RunFolder) -> None:
    """Its job was put back while it was at work, on another node."""
    run.attempt(1).end.unlink()
    late = threading.Timer(0.1, TOLD.write, [run.attempt(1).end])
    late.start()
    forget_first(run, run.attempt(1))
    late.join()
    assert not run.attempt(1).end.exists()


@pytest.mark.parametrize("by", ["record", "ledger"])
def test_an_attempt_that_has_ended_for_good_is_not_begun_again(run: RunFolder, by: str) -> None:
    """Its user may have resumed the run since."""
    if by == "record":
        DONE.write(run.attempt(1).end)
    else:
        ledger.append(run.ledger, Ended.by(1, DONE))
    before = run.ledger.read_bytes()
    assert recorded(run, run.attempt(1), lambda: pytest.fail("it was begun again")) == DONE
    assert run.ledger.read_bytes() == before


def test_an_end_that_others_found_in_the_same_time_stays(run: RunFolder) -> None:
    """As of a supervisor that was cut off, while another job of the run worked for the next attempt."""
    found = [Ended(1, State.NODE_FAIL, "lost n1"), Ended(2, DONE.state, DONE.reason)]

    def work() -> End:
        for event in found:
            ledger.append(run.ledger, event)
        return End(State.FAILED, "another job works for the run")

    assert recorded(run, run.attempt(1), work).state is State.NODE_FAIL
    ends = [event for event in ledger.events(run.ledger) if isinstance(event, Ended)]
    assert [(end.attempt, end.state) for end in ends] == [(1, State.NODE_FAIL), (2, State.COMPLETED)]
    ledger.append(run.ledger, Ended(1, State.FAILED, "of a job that was silent for a while"))
    assert recorded(run, run.attempt(1), lambda: pytest.fail("it was begun again")).state is State.FAILED
    waits = [Submitting(1, name="waits", after=(str(run.folder),))]
    assert unmet(waits, 1) is None, "the newest attempt counts, whichever is noted last"


def test_completion_replaces_the_loss_that_others_found_out(run: RunFolder) -> None:
    """As of a job whose first host was silent for a while, and went on."""

    def work() -> End:
        ledger.append(run.ledger, Ended(1, State.NODE_FAIL, "the first host is silent"))
        return DONE

    assert recorded(run, run.attempt(1), work) == DONE
    assert settled_end(run, run.attempt(1)) == DONE
    assert unmet([Submitting(1, name="waits", after=(str(run.folder),))], 1) is None
