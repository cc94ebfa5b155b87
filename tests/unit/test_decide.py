"""What follows for a run, by all that is known of it and by who asks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torusrun.orchestrator.base.states import Cause, State
from torusrun.orchestrator.run.state.decide import History, Policy, Resume, Stop, Wait, decide

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
        ({"other_nodes": True}, Resume(2)),
        ({"other_nodes": True, "stopped": Cause.TIME_LIMIT}, Resume(2)),  # the limit ends the job, and not the run
        ({"other_nodes": True, "stopped": Cause.STOPPED}, Stop("was asked to stop")),
        ({"other_nodes": True, "stopped": Cause.UNKNOWN}, Stop("was asked to stop")),
        ({"other_nodes": True, "cancelled": True}, Stop("is cancelled by its user", by_user=True)),
        ({"other_nodes": True, "newest": 1}, Resume(2)),
        ({"other_nodes": True, "newest": 3}, Resume(3)),  # its user resumed it meanwhile
        ({"newest": 2, "cancelled": True}, Stop("is cancelled by its user", by_user=True)),
        ({"other_nodes": False}, Stop("by the newest checkpoint, no other number of nodes is wanted")),
    ],
)
def test_a_job_is_followed_by_one_with_other_nodes_unless_somebody_stopped_it(
    known: dict[str, Any], step: Resume | Stop
) -> None:
    assert decide(History(1, State.RUNNING, **known), Policy.JOB) == step


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
    History, st.integers(1, 9), st.sampled_from(State), newest=st.integers(0, 9), begun=st.booleans(),
    at_work=st.none() | st.booleans(), again=st.booleans(), cancelled=st.booleans(), held=st.booleans(),
    stopped=st.none() | st.sampled_from(Cause), other_nodes=st.booleans(), other_job=st.booleans(),
    hopeless=st.sampled_from([None, IN_VAIN]),
)  # fmt: skip


@given(HISTORIES, st.sampled_from(Policy))
def test_whatever_is_known_no_two_attempts_work_at_once_unless_a_user_forces_it(
    history: History, policy: Policy
) -> None:
    step = decide(history, policy)
    if isinstance(step, Resume) and policy is Policy.USER:
        assert not history.at_work
    if isinstance(step, Resume) and policy in (Policy.JOB, Policy.KEEP_GOING):
        assert not history.cancelled
