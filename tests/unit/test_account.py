"""Where the time of a run went: every second of it has one use."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torusrun.orchestrator.base.states import Cause, State
from torusrun.orchestrator.run.folder.events import Ended, Event, KeptGoing, Refused, Started, Submitted, Submitting
from torusrun.orchestrator.run.folder.shown_plan import KeptForecast
from torusrun.orchestrator.run.state.account import USES, Account, account, mean_step_s
from torusrun.orchestrator.run.state.attempts import AttemptFacts
from torusrun.orchestrator.show.listing import forecast_line

NOW_S = 1000.0


def attempt(
    number: int,
    submitted_s: float,
    began_s: float | None,
    ended_s: float | None,
    cause: Cause,
    follows: int = 0,
    task: str = "1",
) -> list[Event]:
    intent = Submitting(number, "r", follows=follows, time_s=submitted_s)
    events: list[Event] = [intent, Submitted(number, "1", time_s=submitted_s)]
    if began_s is not None:
        events.append(Started(number, task, ("n1",), time_s=began_s))
    if ended_s is not None:
        events.append(Ended(number, cause.state, "it ended", cause, time_s=ended_s))
    return events


def row(number: int, t: float, event: str, step: int, **more: Any) -> dict[str, Any]:
    return {"attempt": number, "t": t, "event": event, "step": step, **more}


def used(events: list[Event], rows: list[dict[str, Any]], now_s: float = NOW_S) -> dict[str, float]:
    return {use: seconds for use, seconds in account(events, rows, now_s, State.RUNNING).seconds.items() if seconds}


ONE = [
    row(1, 130.0, "start", 0), row(1, 140.0, "step", 1), row(1, 150.0, "step", 10),
    row(1, 153.0, "checkpoint", 10, seconds=3.0), row(1, 163.0, "step", 20), row(1, 167.0, "eval", 20),
]  # fmt: skip


def test_one_attempt_from_its_submission_to_its_end_and_its_productive_share() -> None:
    assert used(attempt(1, 0.0, 120.0, 170.0, Cause.DONE), ONE) == {
        "queue": 120.0, "start": 20.0, "compute": 20.0, "evaluation": 4.0, "checkpoints": 3.0, "stopping": 3.0,
    }  # fmt: skip
    found = account(attempt(1, 0.0, 120.0, 170.0, Cause.DONE), ONE, NOW_S, State.RUNNING)
    assert (found.productive_s, found.total_s, found.ettr) == (24.0, 170.0, 24.0 / 50.0)
    assert found.as_json()["since_submit"] == 24.0 / 170.0


def test_steps_that_the_next_attempt_computes_again_are_lost() -> None:
    events = [*attempt(1, 0.0, 120.0, 170.0, Cause.KILLED), *attempt(2, 200.0, 210.0, None, Cause.DONE)]
    rows = [*ONE, row(2, 220.0, "start", 10), row(2, 225.0, "step", 11)]
    assert used(events, rows, now_s=230.0) == {
        "queue": 130.0, "start": 35.0, "compute": 15.0, "checkpoints": 3.0, "lost": 14.0, "stopping": 3.0, "idle": 30.0,
    }  # fmt: skip


def test_in_a_chain_the_time_between_two_attempts_is_queue() -> None:
    """Nobody has to submit the next one, whose job waits in the queue and names it when it begins."""
    chain = [*attempt(1, 0.0, 10.0, 40.0, Cause.KILLED), *attempt(2, 55.0, 55.0, 70.0, Cause.DONE, 1, "1_2")]
    rows = [row(1, 12.0, "step", 1), row(1, 40.0, "step", 8), row(2, 60.0, "start", 8), row(2, 70.0, "step", 9)]
    assert used(chain, rows) == {"queue": 25.0, "start": 17.0, "compute": 28.0}
    within = [*chain[:4], *attempt(2, 55.0, 56.0, 70.0, Cause.DONE, follows=1)]
    assert used(within, rows) == {"queue": 10.0, "start": 32.0, "compute": 28.0}, "it begins again within its job"


def test_the_wait_for_the_next_attempt_counts_while_it_lasts() -> None:
    chain: list[Event] = [Submitting(1, "r", jobs=9, time_s=0.0), *attempt(1, 0.0, 10.0, 40.0, Cause.KILLED)[1:]]
    found = [account(chain, [], 100.0, state) for state in (State.PENDING, State.RUNNING, State.FAILED)]
    assert [(one.total_s, one.seconds["queue"]) for one in found] == [(100.0, 70.0), (100.0, 10.0), (40.0, 10.0)]
    assert found[1].seconds["start"] == 60.0, "it begins"
    assert account([*chain, KeptGoing(1, "so")], [], 100.0, State.UNKNOWN).total_s == 40.0, "none follows"


def test_the_attempts_as_their_ledger_has_them() -> None:
    events = [
        *attempt(1, 0.0, 10.0, None, Cause.DONE),
        *attempt(2, 100.0, 120.0, 150.0, Cause.HOST_LOST),
        Submitting(3, "r", resumes="/r/checkpoints/step-00000020", time_s=160.0),
        Submitted(3, "7.1", time_s=160.0),
    ]
    first, second, third = account(events, [row(1, 30.0, "step", 2)], NOW_S, State.PENDING).attempts
    assert (first.state, first.cause, first.took_s) == (State.LOST, "unknown", 90.0)
    assert (second.state, second.cause, second.took_s, second.hosts) == (State.NODE_FAIL, "host_lost", 30.0, ("n1",))
    assert (third.state, third.cause, third.took_s, third.job) == (State.PENDING, "", None, "7.1")
    assert third.resumes == "/r/checkpoints/step-00000020"


def test_an_attempt_says_from_which_memory_it_continues_once_it_trains() -> None:
    events = [Submitting(2, "r", resumes="step-00000020", time_s=0.0), Started(2, "1", ("n1",), time_s=1.0)]
    before = account(events, [], NOW_S, State.RUNNING).attempts[0]
    rows = [row(2, 5.0, "start", 29, resumed_from="memory of n1, step 29"), row(3, 6.0, "start", 1, resumed_from=7)]
    after = account(events, rows, NOW_S, State.RUNNING).attempts[0]
    assert (before.resumes, after.resumes) == ("step-00000020", "memory of n1, step 29")


def test_a_program_whose_metrics_have_steps_alone() -> None:
    events = [*attempt(1, 0.0, 0.0, 40.0, Cause.PROGRAM), *attempt(2, 40.0, 40.0, 60.0, Cause.DONE)]
    rows = [row(1, 10.0, "step", 1), row(1, 20.0, "step", 2), row(1, 30.0, "step", 3), row(2, 50.0, "step", 3)]
    assert used(events, rows) == {"start": 20.0, "compute": 10.0, "lost": 10.0, "stopping": 20.0}


@pytest.mark.parametrize(("cause", "use"), [(Cause.HANG, "hang"), (Cause.PROGRAM, "stopping")])
def test_the_time_after_the_last_step_depends_on_the_cause(cause: Cause, use: str) -> None:
    assert used(attempt(1, 0.0, 0.0, 70.0, cause), [row(1, 10.0, "step", 1)]) == {"start": 10.0, use: 60.0}


def test_an_attempt_that_reports_no_step_and_a_run_without_records() -> None:
    found = account(attempt(1, 0.0, 10.0, 90.0, Cause.PROGRAM), [], NOW_S, State.RUNNING)
    assert (found.seconds["queue"], found.seconds["unreported"], found.ettr) == (10.0, 80.0, None)
    found = account([], [], NOW_S, State.RUNNING)
    assert (found.total_s, found.ettr) == (0.0, None)


def test_a_run_without_a_record_of_its_end_ended_at_its_last_row() -> None:
    """As a LOST run, and one whose disk was full."""
    lost = attempt(1, 0.0, 10.0, None, Cause.DONE)
    assert account(lost, [row(1, 40.0, "step", 1)], NOW_S, State.LOST).seconds["start"] == 30.0
    assert account(lost, [row(1, 40.0, "step", 1)], NOW_S, State.LOST).total_s == 40.0
    assert account(lost, [], NOW_S, State.LOST).total_s == 10.0


def test_a_refused_attempt_takes_no_time() -> None:
    events = attempt(1, 0.0, 10.0, 50.0, Cause.KILLED)
    refused = [Submitting(2, "r", time_s=60.0), Refused(2, "no such queue", time_s=61.0)]
    assert account([*events, *refused], [], NOW_S, State.LOST).total_s == 50.0
    again = attempt(2, 80.0, 90.0, 95.0, Cause.DONE)
    found = account([*events, *refused, *again], [], NOW_S, State.LOST)
    assert (found.seconds["idle"], found.seconds["queue"], found.total_s) == (30.0, 20.0, 95.0)


@pytest.mark.parametrize("seconds", [float("nan"), float("-inf"), -1e300, 10**20, "3", None, True], ids=str)
def test_damaged_rows_give_no_use_more_time_than_there_was(seconds: object) -> None:
    rows = [row(1, 10.0, "step", 1), row(1, 20.0, "checkpoint", 1, seconds=seconds), row(1, 9e14, "step", 2)]
    found = used(attempt(1, 0.0, 5.0, 30.0, Cause.DONE), rows)
    assert found == {"queue": 5.0, "start": 5.0, "compute": 20.0}


def test_a_run_that_waits_or_computes_now() -> None:
    assert used(attempt(1, 900.0, None, None, Cause.DONE), []) == {"queue": 100.0}
    assert used(attempt(1, 800.0, 900.0, None, Cause.DONE), []) == {"queue": 100.0, "start": 100.0}
    steps = [row(1, 910.0, "step", 1)]
    assert used(attempt(1, 800.0, 900.0, None, Cause.DONE), steps) == {"queue": 100.0, "start": 10.0, "compute": 90.0}


times = st.floats(0, 1000, allow_nan=False)
kinds = st.sampled_from(["start", "step", "eval", "checkpoint", "stop", "done", "of a program"])


@given(
    begun=st.lists(st.tuples(times, st.none() | times, st.none() | times, st.sampled_from(Cause)), max_size=4),
    rows=st.lists(st.tuples(st.integers(1, 5), times, kinds, st.integers(0, 9), times), max_size=20),
)
def test_the_uses_add_up_to_the_time_from_the_first_to_the_last(begun: list[Any], rows: list[Any]) -> None:
    """Whatever clocks say: no use is negative, and nothing is counted twice or left out."""
    events = [event for n, one in enumerate(begun, 1) for event in attempt(n, *one)]
    listed = [row(n, t, kind, step, seconds=seconds) for n, t, kind, step, seconds in rows]
    found = account(events, listed, NOW_S, State.RUNNING)
    assert set(found.seconds) == set(USES) and all(seconds >= 0 for seconds in found.seconds.values())
    assert found.ettr is None or 0 <= found.ettr <= 1 + 1e-9
    if begun:
        now = [] if isinstance(events[-1], Ended) else [NOW_S]
        assert found.total_s == pytest.approx(max(now + [event.time_s for event in events]) - events[0].time_s)


def trained(steps: int, number: int = 1, since_s: float = 0.0) -> list[dict[str, Any]]:
    """A row for every fifth step of 0.5 s, with an evaluation of 3 s after half of them."""
    rows, at_s = [], since_s
    for step in range(1, steps + 1):
        at_s += 0.5
        rows += [row(number, at_s, "step", step)] if step % 5 == 0 else []
        if step == steps // 2 + 1:
            at_s += 3.0
            rows.append(row(number, at_s, "eval", step))
    return rows


def test_the_mean_step_is_that_between_rows_of_one_attempt() -> None:
    assert mean_step_s(trained(40)) == pytest.approx(0.5)
    assert mean_step_s([*trained(20), *trained(40, 2, 5000.0)]) == pytest.approx(0.5)
    assert mean_step_s(trained(10)) is None, "fewer than ten steps"
    assert mean_step_s([{**each, "t": 1000.0 - each["t"]} for each in trained(40)]) is None, "a clock that runs back"
    damaged = [row(1, 1.0, "step", 1), {**row(1, 2.0, "step", 9), "t": None}, {"event": "x"}, row(1, 2.0, "step", 30)]
    assert mean_step_s(damaged) is None


def test_the_forecast_stands_beside_what_the_run_took() -> None:
    kept = KeptForecast(total_s=25.0, validation_s=5.0, steps=50, images_per_s=1.0, grid=(2, 2))
    ended = AttemptFacts(1, 0.0, 50.0, State.COMPLETED)
    line = forecast_line(Account((ended,), {"compute": 30.0}, 0.0, kept, 0.5))
    assert line.endswith("took 30.0 s (+20.0%); a step of 400.00 ms took 500.00 ms (+25.0%)")
