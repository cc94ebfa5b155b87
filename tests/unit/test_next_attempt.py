"""A run that keeps going: its progress by the ledger, and its state between two attempts."""

from __future__ import annotations

from pathlib import Path

import pytest

from torusrun.orchestrator.base.states import Cause, State, Status
from torusrun.orchestrator.run.folder.checkpoints import content
from torusrun.orchestrator.run.folder.events import (
    CancelRequested,
    Ended,
    Event,
    GivenBadHosts,
    KeptGoing,
    Started,
    Submitted,
    Submitting,
)
from torusrun.orchestrator.run.state import next_attempt
from torusrun.orchestrator.run.state.next_attempt import (
    OUTSIDE,
    PAUSES_S,
    ended_outside,
    first_of_submission,
    hopeless,
    in_vain,
    pause_s,
    same_error,
)
from torusrun.orchestrator.schedulers.words import whole, with_arrays

LIMIT = Ended(2, State.TIMEOUT, "its time limit is near", Cause.TIME_LIMIT)
OWN = Status(State.TIMEOUT, "its time limit is near", cause=Cause.TIME_LIMIT)


def attempts(*resumes: str | None, by_user: int = 1) -> list[Event]:
    """Attempts that continued from these checkpoints; attempt `by_user` was submitted by a client."""
    follows = [0 if number == by_user else number - 1 for number in range(1, len(resumes) + 1)]
    return [
        event
        for number, (name, before) in enumerate(zip(resumes, follows, strict=True), 1)
        for event in (
            Submitting(number, "x.1", resumes=name, follows=before, jobs=9, by="7_x" if before else ""),
            Submitted(number, "7"),
            Started(number, f"7_{number}", ("n1",)),
        )
    ]


@pytest.mark.parametrize(
    ("resumes", "newest", "by_user", "count"),
    [
        ([None], None, 1, 1),
        ([None], "step-1", 1, 0),
        ([None, "step-1"], "step-1", 1, 1),
        ([None, "step-1", "step-1"], "step-1", 1, 2),
        ([None, "step-1", "step-1"], "step-2", 1, 0),
        ([None, None, None], None, 1, 3),
        ([None, None, None], None, 3, 1),  # what was in vain before the user resumed it does not count
    ],
)
def test_attempts_without_a_new_checkpoint_are_counted_from_the_last(
    resumes: list[str | None], newest: str | None, by_user: int, count: int
) -> None:
    events = attempts(*resumes, by_user=by_user)
    assert in_vain(events, len(resumes), (newest, "")) == count
    assert first_of_submission(events, len(resumes)) == by_user


@pytest.mark.parametrize("cause", [Cause.BAD_HOST, Cause.PREEMPTED, *OUTSIDE])
def test_an_attempt_that_its_hosts_or_another_job_ended_was_not_in_vain(cause: Cause) -> None:
    events = [*attempts(None, None, None), Ended(2, State.NODE_FAIL, "", cause)]
    assert in_vain([*events, Ended(3, State.FAILED, "", Cause.PROGRAM)], 3, (None, "")) == 2


LAUNCHER = Cause.LAUNCHER


@pytest.mark.parametrize(
    ("causes", "newest", "count"),
    [
        ([LAUNCHER], None, 1),
        ([LAUNCHER, Cause.UNKNOWN, Cause.HOST_LOST], None, 3),
        ([LAUNCHER, Cause.PROGRAM, LAUNCHER], None, 1),
        ([LAUNCHER, Cause.PROGRAM], None, 0),
        ([LAUNCHER, LAUNCHER], "step-1", 0),  # there is progress
        ([LAUNCHER, None], None, 0),  # it has not ended
    ],
)
def test_ends_outside_the_program_are_counted_in_a_row(
    causes: list[Cause | None], newest: str | None, count: int
) -> None:
    ends = [Ended(number, State.FAILED, "", cause) for number, cause in enumerate(causes, 1) if cause]
    assert ended_outside([*attempts(*[None] * len(causes)), *ends], len(causes), (newest, "")) == count


def test_an_attempt_that_was_long_at_work_is_the_first_of_a_row() -> None:
    late_s = attempts(None)[-1].time_s + PAUSES_S[-1] + 60
    ends = [Ended(number, State.FAILED, "", LAUNCHER, time_s=late_s) for number in (1, 2)]
    assert ended_outside([*attempts(None, None), *ends], 2, (None, "")) == 1


def test_pauses_grow_from_seconds_to_minutes_whatever_the_clocks_say() -> None:
    found = [pause_s(outside, 1000.0, 1000.0) for outside in range(9)]
    assert found == sorted(found) and found[:2] == [0.0, 0.0] and 0 < found[2] < 10 and found[-1] == 600.0
    assert (pause_s(2, 1000.0, 1002.0), pause_s(2, 1000.0, 9e9), pause_s(2, 9e9, 1000.0)) == (3.0, 0.0, 5.0)


@pytest.mark.parametrize(
    ("steps", "count"),
    [
        ({1: 0, 2: 40, 3: 80}, 1),  # whether the newest got further is not known
        ({1: 0, 2: 40, 3: 40}, 2),
        ({1: 0, 2: 0, 3: 0}, 3),
        ({1: 0, 3: 40}, 2),  # the second never began to train
        ({1: 40, 2: 0, 3: 0}, 3),  # the memory was lost
        ({}, 3),
    ],
)
def test_an_attempt_that_another_continues_from_memory_was_not_in_vain(steps: dict[int, int], count: int) -> None:
    assert in_vain(attempts(None, None, None), 3, (None, ""), steps) == count


def test_a_checkpoint_that_a_program_writes_again_is_a_new_one() -> None:
    events = [*attempts(None), Submitting(2, "x.1", resumes="last.pt", resumes_content="7", follows=1, by="7_0")]
    assert in_vain(events, 2, ("last.pt", "7")) == 1 and in_vain(events, 2, ("last.pt", "8")) == 0


@pytest.mark.parametrize(("minutes", "same"), [(1, True), (30, False)])
def test_an_error_that_repeats_soon_is_the_same_whatever_the_program_writes_at_its_start(
    minutes: float, same: bool
) -> None:
    events = attempts(None, "log-1", "log-2")
    ends = [
        Ended(n, State.FAILED, "", **error("ValueError: 3"), time_s=events[-1].time_s + 60 * minutes) for n in (1, 2, 3)
    ]  # type: ignore[arg-type]
    assert same_error([*events, *ends], 3) == same and not same_error([*events, *ends], 2)


def test_a_submission_ends_at_the_attempt_that_a_client_or_a_hand_over_submitted() -> None:
    events = [*attempts(None, None), Submitting(3, "x.3", follows=2, jobs=9)]
    events.append(Submitting(4, "x.3", follows=3, by="7_0"))
    assert first_of_submission(events, 4) == 3 and first_of_submission(events, 2) == 1


def test_alike_errors_at_unknown_steps_are_the_same_only_from_the_same_checkpoint() -> None:
    ends = [Ended(n, State.FAILED, "", Cause.PROGRAM, evidence={"said": "CUDA error"}) for n in (1, 2)]
    assert same_error([*attempts(None, None), *ends], 2)
    assert not same_error([*attempts(None, "step-7"), *ends], 2)


def error(said: str, place: str = "") -> dict[str, object]:
    return {"cause": Cause.PROGRAM, "evidence": {"said": said, "place": place}}


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        ({}, {}, True),
        ({}, {"step": 8}, False),
        ({}, error("KeyError"), False),
        ({}, {"cause": Cause.KILLED}, False),
        ({}, error("ValueError: 4"), True),
        (error("ValueError: a", "train.py:7"), error("ValueError: b", "train.py:7"), True),
        (error("ValueError: a", "train.py:7"), error("ValueError: a", "train.py:8"), False),
        (error("ValueError: a", "train.py:7"), error("KeyError: a", "train.py:7"), False),
        (error("[rank0]: my.Error: a", "t.py:7"), error("[rank3]: my.Error: b", "t.py:7"), True),
        (
            error("rank 1 exited with 1: ValueError: a", "t.py:7"),
            error("rank 0 exited with 1: ValueError: b", "t.py:7"),
            True,
        ),
        (error("worker 4711 at 0x7fAb3c: /tmp/x-8/log is gone"), error("worker 12 at 0x1: /tmp/y.9/log is gone"), True),
        (error("job 3f2a9c81d7 on host7 failed"), error("job 99ab01cd77 on host8 failed"), True),
        (error("cannot open the door"), error("cannot open the window"), False),
        (error(""), error(""), False),
    ],
)
def test_two_ends_are_alike_if_step_type_and_place_are(
    first: dict[str, object], second: dict[str, object], alike: bool
) -> None:
    first = {**error("ValueError: 3"), "step": 7, **first}
    ends = [Ended(n, State.FAILED, "", **facts) for n, facts in ((1, first), (2, {**first, **second}))]  # type: ignore[arg-type]
    assert same_error([*attempts(None, None), *ends], 2) == alike


@pytest.mark.parametrize(
    ("job", "state", "says"),
    [
        (
            Status(State.PENDING, "Priority"),
            State.PENDING,
            "its time limit is near; the next waits",
        ),
        (Status(State.RUNNING), State.RUNNING, "the next begins"),
        (Status(State.UNKNOWN, "no answer"), State.UNKNOWN, "whether another attempt follows is not known: no answer"),
        (Status(State.COMPLETED), State.TIMEOUT, "its time limit is near"),
    ],
)
def test_between_two_attempts_the_state_is_that_of_the_next_job(job: Status, state: State, says: str) -> None:
    found = next_attempt.status([*attempts(None, None), LIMIT], 2, OWN, job)
    assert found.state is state and says in found.reason


@pytest.mark.parametrize(
    ("more", "follows"),
    [
        ([], True),
        ([Ended(2, State.COMPLETED, "")], False),
        ([LIMIT, KeptGoing(2, "its jobs are over")], False),
        ([LIMIT, KeptGoing(1, "of an earlier submission")], True),
    ],
)
def test_the_ledger_says_whether_another_attempt_may_follow(more: list[Event], follows: bool) -> None:
    assert next_attempt.may_begin_another([*attempts(None, None), *more], 2) == follows
    assert not next_attempt.may_begin_another([Submitting(1, "x.1"), *more], 1)


def test_the_end_says_why_no_further_attempt_followed() -> None:
    events = [*attempts(None, None), LIMIT, KeptGoing(2, "its jobs are over")]
    assert (
        next_attempt.at_the_end(events, 2, OWN).reason
        == "its time limit is near; no further attempt: its jobs are over"
    )
    cancelled = next_attempt.at_the_end([*events[:-1], CancelRequested(2), KeptGoing(2, "so", cancelled=True)], 2, OWN)
    assert (cancelled.state, cancelled.cause) == (State.CANCELLED, Cause.STOPPED)


def test_an_array_is_as_its_running_task_else_as_a_waiting_one_else_as_the_last_that_ran() -> None:
    lost, done = Status(State.NODE_FAIL, hosts=("n1",)), Status(State.COMPLETED, hosts=("n1",))
    removed, waits, runs = Status(State.CANCELLED), Status(State.PENDING), Status(State.RUNNING)
    assert whole(done, waits, runs) is runs and whole(done, waits) is waits
    assert whole(done, lost, removed) is lost and whole(removed) is removed
    found = with_arrays({"7_0": done, "7_[1-4%1]": waits, "8": runs}, lambda job: "7" if job[0] == "7" else None)
    assert found["7"] is waits and found["8"] is runs and len(found) == 4


@pytest.mark.parametrize("pointer", ["latest", "latest.pt"])
def test_a_checkpoint_below_a_pointer_that_is_newer_is_progress(tmp_path: Path, pointer: str) -> None:
    """As two files that are written in turn, with a link to the newest, or DeepSpeed's folders and file of a name."""

    def seen(folder: str, state: str) -> str:
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "state.pt").write_text(state)
        (tmp_path / pointer).unlink(missing_ok=True)
        if pointer == "latest":
            (tmp_path / pointer).write_text(folder)
        else:
            (tmp_path / pointer).symlink_to(Path(folder, "state.pt"))
        return content(tmp_path)

    states = [seen("a", "1"), seen("b", "2"), seen("a", "3"), seen("b", "4")]
    assert len({*states}) == 4 and seen("b", "4") == states[-1]


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        ([Cause.TIME_LIMIT], ""),
        ([Cause.HOST_LOST, Cause.TIME_LIMIT], ""),
        ([Cause.TIME_LIMIT] * 2, "2 attempts in a row made no new checkpoint (keep_going.without_progress)"),
        ([Cause.IMAGE], ""),  # it has begun, so the files are right: it is this host
        ([Cause.SCHEDULER], "its dependency dropped it"),
        ([Cause.LAUNCHER] * 8, "each of its 8 attempts or more was ended by its launcher, its scheduler or a host"),
    ],
)
def test_a_run_has_hope_until_its_ends_say_otherwise(ends: list[Cause], why: str) -> None:
    last = len(ends)
    events = [*attempts(*[None] * last), *(Ended(n, cause.state, "", cause) for n, cause in enumerate(ends, 1))]
    found = hopeless(events, last, (None, ""), {}, 2)
    assert (found.why if found else "") == why


def test_a_run_without_a_start_or_without_the_nodes_of_its_next_phase_stops() -> None:
    begun = [Submitting(1, "x.1", jobs=9), Submitted(1, "7")]
    for cause in (Cause.CONFIGURATION, Cause.IMAGE):
        found = hopeless([*begun, Ended(1, cause.state, "", cause)], 1, (None, ""), {}, 2)
        assert found and found.why == "another attempt would fail in the same way"
    given = [GivenBadHosts(1, f"7_{task}", {"n3": "lost twice"}) for task in range(3)]
    found = hopeless([*begun, Ended(1, State.NODE_FAIL, "", Cause.BAD_HOST), *given], 1, (None, ""), {}, 2)
    assert found and found.hosts == ("n3",)
    end = Ended(1, State.TIMEOUT, "", Cause.STOPPED, evidence={"wanted": "phase 2 needs 4 nodes"})
    found = hopeless([*attempts(None), end], 1, (None, ""), {}, 2)
    assert found and "needs other nodes" in found.why
