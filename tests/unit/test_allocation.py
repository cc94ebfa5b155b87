"""Held allocations: requests to their keeper, what fits into them, and what is said of the attempts in them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.run_folders import DONE, make, write_specs
from tests.unit.verbs import Patch
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.job import inbox, turns
from torusrun.orchestrator.job.inbox import Inbox
from torusrun.orchestrator.keys.measured import Measured
from torusrun.orchestrator.keys.site import PreflightSettings
from torusrun.orchestrator.run.attempts import submit
from torusrun.orchestrator.run.attempts.in_hold import Allocation, check, find, held_plan, misfits
from torusrun.orchestrator.run.folder import allocation, ledger
from torusrun.orchestrator.run.folder.allocation import AskedOf, KeeperState
from torusrun.orchestrator.run.folder.events import CancelRequested, Started, Submitted, Submitting
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.plan import attempt_plan
from torusrun.orchestrator.run.plan.job_request import request
from torusrun.orchestrator.run.plan.plan import Plan, plan
from torusrun.orchestrator.run.plan.plan_files import read_plan
from torusrun.orchestrator.run.program.training import configuration
from torusrun.orchestrator.run.state import poll
from torusrun.orchestrator.run.state.depends import in_hold, told_by_keeper
from torusrun.orchestrator.run.state.outcome import resolve
from torusrun.orchestrator.run.state.poll import views
from torusrun.orchestrator.run.state.record import read_record
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.schedulers.local.sessions import job_id_of
from torusrun.training.checkpoint import node_memory

ENDS = 'echo \'{"schema": 1, "state": "FAILED", "reason": "rank 2 failed", "certain": false}\' > end.json'


@pytest.fixture
def held(home: Path) -> RunFolder:
    """The folder of a run that holds an allocation, whose ranks have started."""
    run = make(write_specs(home), DONE)
    run.attempt(1).end.unlink()
    run.ledger.write_text("".join(run.ledger.read_text().splitlines(keepends=True)[:-1]))
    allocation.make(run, 60.0)
    return run


def in_it(held: RunFolder, name: str, script: str = "true", *, cut_off: bool = False) -> RunFolder:
    """A run whose first attempt goes to the held allocation, with this script; its client may have been killed."""
    run = RunFolder(held.folder.parent / name)
    run.attempt(1).folder.mkdir(parents=True)
    for path in (run.plan, run.attempt(1).plan):
        path.write_text(held.plan.read_text())
    run.attempt(1).script.write_text(script)
    ledger.append(run.ledger, Submitting(1, name=name, held_in=str(held.folder)))
    if not cut_off:
        ledger.append(run.ledger, Submitted(1, job="1.1", scheduler="local"))
    return run


def keeper_of(held: RunFolder, *, idle_s: float = 60.0, for_s: float = 3600.0) -> Inbox:
    made = read_plan(held, 1)
    return Inbox(held, held.attempt(1), made, idle_s, time.time() + for_s)


def begin_first(kept: Inbox) -> None:
    turn = kept._turn(kept.waiting.popleft())
    assert turn
    kept.begin(turn)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: Patch) -> None:
    monkeypatch.setattr(turns, "LOOK_S", 0.005)
    monkeypatch.setattr(inbox, "WAITING_LOOK_S", 0.0)


def ended(run: RunFolder) -> tuple[str, str]:
    end = End.read(run.attempt(1).end)
    assert end
    return end.state.value, end.reason


def test_requests_are_taken_once_and_in_order(held: RunFolder) -> None:
    attempts = [in_it(held, name).attempt(1) for name in ("b", "a", "c")]
    for attempt in attempts:
        allocation.ask(held.attempt(1), AskedOf(attempt))
    assert [request.attempt for request in allocation.take(held.attempt(1).inbox)] == attempts
    assert list(allocation.take(held.attempt(1).inbox)) == []


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", '{"attempt": "/etc", "kill": false}', '{"attempt": 1, "kill": false}', '{"attempt": "runs/1"}'],
)
def test_what_is_no_request_is_left_out(held: RunFolder, text: str) -> None:
    (held.attempt(1).inbox / "1.json").write_text(text)
    assert list(allocation.take(held.attempt(1).inbox)) == []
    assert not list(held.attempt(1).inbox.iterdir())


def test_an_inbox_that_cannot_be_read_ends_nothing(held: RunFolder) -> None:
    inbox, attempt = held.attempt(1).inbox, in_it(held, "a").attempt(1)
    (inbox / "0.json").mkdir()
    allocation.ask(held.attempt(1), AskedOf(attempt))
    assert [request.attempt for request in allocation.take(inbox)] == [attempt]
    assert list(allocation.take(inbox / "not-there")) == []


def test_no_request_is_lost_if_the_keeper_ends_at_the_same_time(held: RunFolder) -> None:
    early, late = in_it(held, "early", ENDS), in_it(held, "late")
    allocation.ask(held.attempt(1), AskedOf(early.attempt(1)))
    end = keeper_of(held, idle_s=-1.0).keep()
    assert end.state is State.COMPLETED and "1 attempt ran in it" in end.reason
    assert ended(early)[0] == "FAILED", "what was asked for before the end has run"
    with pytest.raises(allocation.Closed, match="holds its allocation no longer"):
        allocation.ask(held.attempt(1), AskedOf(late.attempt(1)))


def test_attempts_run_one_after_the_other_and_their_own_record_is_their_end(held: RunFolder) -> None:
    order = held.folder / "order"
    runs = [in_it(held, name, f"echo {name} $TORUSRUN_HELD >> {order}\n{ENDS}") for name in ("x", "y")]
    for run in runs:
        allocation.ask(held.attempt(1), AskedOf(run.attempt(1)))
    keeper_of(held, idle_s=0.05).keep()
    assert order.read_text().split() == ["x", str(held.attempt(1).folder), "y", str(held.attempt(1).folder)]
    for run in runs:
        record = read_record(run)
        assert record.settled, "the scheduler, whose job goes on, knows no more than an uncertain record"
        assert record.status(in_hold(record, Status(State.RUNNING)), time.time()).state is State.FAILED


def test_a_cancelled_attempt_never_begins_and_a_killed_one_has_an_end(held: RunFolder) -> None:
    busy, waiting = in_it(held, "busy", "sleep 600"), in_it(held, "waiting", "touch began")
    attempt = held.attempt(1)
    for run in (busy, waiting):
        allocation.ask(attempt, AskedOf(run.attempt(1)))
    ledger.append(waiting.ledger, CancelRequested(1))
    allocation.ask(attempt, AskedOf(busy.attempt(1), kill=True))
    kept = keeper_of(held, idle_s=0.05)
    kept._take(attempt.inbox)
    begin_first(kept)
    allocation.ask(attempt, AskedOf(busy.attempt(1), kill=True))
    kept.keep()
    assert ended(busy) == ("CANCELLED", "it did not end in time and was killed")
    assert ended(waiting) == ("CANCELLED", "cancelled by its user before it began")
    assert not (waiting.attempt(1).folder / "began").exists()


def test_the_end_of_the_allocation_is_handed_on_to_what_runs_and_waits(held: RunFolder) -> None:
    asked = "until grep -q cancel_requested ../../ledger.jsonl; do sleep 0.02; done\n" + ENDS
    busy, waiting = in_it(held, "busy", asked), in_it(held, "waiting")
    kept = keeper_of(held)
    for run in (busy, waiting):
        allocation.ask(held.attempt(1), AskedOf(run.attempt(1)))
    kept._take(held.attempt(1).inbox)
    begin_first(kept)
    ledger.append(held.ledger, CancelRequested(1))
    assert kept.keep().reason == "cancelled by its user"
    assert ended(busy)[0] == "FAILED", "it heard of the cancellation and recorded its own end"
    assert ended(waiting)[0] == "CANCELLED" and "given back before this attempt began" in ended(waiting)[1]


def test_nothing_begins_when_the_time_is_over(held: RunFolder) -> None:
    run = in_it(held, "run", "touch began")
    allocation.ask(held.attempt(1), AskedOf(run.attempt(1)))
    end = keeper_of(held, for_s=1.0).keep()  # the site stops what runs 10 s before
    assert end.state is State.COMPLETED and "its time is over" in end.reason
    assert ended(run)[0] == "CANCELLED" and not (run.attempt(1).folder / "began").exists()


def test_copies_in_memory_stay_for_the_next_attempt_of_their_run_alone(
    held: RunFolder, home: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(node_memory, "SHARED", home / "shm")
    (home / "shm").mkdir()
    kept = json.loads(held.plan.read_text())
    kept["spec"]["train"]["checkpoints"]["memory"] = True
    held.plan.write_text(json.dumps({**kept, "changes": {}, "exclude": []}))  # of an attempt, too
    first, other = (in_it(held, name) for name in ("first", "other"))
    (first.attempt(2).folder).mkdir()
    first.attempt(2).plan.write_text(held.plan.read_text())
    ledger.append(first.ledger, Submitting(2, name="first", held_in=str(held.folder)))
    of_first, of_other = (node_memory.of_run(held.run_id, run.checkpoints) for run in (first, other))
    looks = f"test -e {of_first} && echo there >> {home}/seen || echo gone >> {home}/seen\n"
    for attempt, folder in ((first.attempt(1), of_first), (first.attempt(2), of_first), (other.attempt(1), of_other)):
        attempt.script.write_text(f"{looks}mkdir -p -m 700 {folder.parent} {folder}\n{ENDS}")
        allocation.ask(held.attempt(1), AskedOf(attempt))
    working = keeper_of(held, idle_s=0.05)
    working.keep()
    assert (home / "seen").read_text().split() == ["gone", "there", "gone"]
    assert of_other.exists()
    working.remove_copies()
    assert not of_other.exists(), "nothing stays after the allocation"


def test_copies_in_memory_are_kept_as_long_as_the_allocation(held: RunFolder, monkeypatch: Patch) -> None:
    attempt, made = held.attempt(1), PLAN_OF["run"]
    KeeperState(1, "here", time.time() + 9e6, 60.0, 0.0).write(attempt)
    alone_s = configuration(made, held, attempt)["memory_until_s"]
    monkeypatch.setenv(allocation.VARIABLE, str(attempt.folder))
    assert configuration(made, held, attempt)["memory_until_s"] > alone_s + 8e6


PLAN_OF: dict[str, Plan] = {}


@pytest.fixture(scope="module", autouse=True)
def a_plan(tmp_path_factory: pytest.TempPathFactory) -> None:
    PLAN_OF["run"] = plan(write_specs(tmp_path_factory.mktemp("specs")))


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 8), st.integers(1, 8))
def test_only_what_fits_is_let_in(nodes: int, ranks: int, held_nodes: int, held_ranks: int) -> None:
    made = PLAN_OF["run"]
    asked, kept = (
        replace(made, run=replace(made.run, nodes=n, ranks_per_node=r, grid=None))
        for n, r in ((nodes, ranks), (held_nodes, held_ranks))
    )
    assert bool(misfits(asked, kept)) == (nodes > held_nodes or ranks > held_ranks)


def test_a_run_of_another_site_is_refused_unless_what_differs_changes_nothing_in_a_job_that_has_begun() -> None:
    made = PLAN_OF["run"]
    other = replace(made, site=replace(made.site, launcher="mpirun", poll_interval_s=3.0))
    assert misfits(other, made) == ["its site differs from the run's site in launcher"]
    made = PLAN_OF["run"]
    free = {"preflight": PreflightSettings(enabled=False), "measured": Measured(links_error=0.1)}
    assert not misfits(replace(made, site=replace(made.site, **free)), made)


def test_a_run_that_does_not_fit_is_refused_with_all_its_needs_and_leaves_nothing(held: RunFolder) -> None:
    made = PLAN_OF["run"]
    into = Allocation(held, "1.1", made)
    check(made, into)
    larger = replace(made, run=replace(made.run, nodes=made.run.nodes + 1, grid=None, queue="gpu"))
    nodes = f"the run takes {made.run.nodes + 1} nodes, and it has {made.run.nodes}"
    with pytest.raises(UserError) as refused:
        submit.first(larger, made.folder / "run.yaml", into=into)
    assert str(refused.value).splitlines() == [
        f"{held.run_id}: {need}" for need in (nodes, "the run needs the queue 'gpu'")
    ]
    assert not larger.folder.exists()


def test_an_allocation_asks_for_what_its_runs_would_ask_for(tmp_path: Path) -> None:
    made = PLAN_OF["run"]
    held = held_plan(made, 7200.0, None)
    asked, would = (request(attempt_plan.first(p), Attempt(tmp_path / "attempts" / "1")) for p in (held, made))
    usual = replace(would, name=asked.name, token=asked.token, time_s=7200.0)
    assert asked == usual and held.run.name == "held-made" and not misfits(made, held)
    assert read_back(held, tmp_path).run.command[-1].endswith("; import torch")
    with pytest.raises(UserError, match="--name: '-x'"):
        held_plan(made, None, "-x")
    with pytest.raises(UserError, match="longer than the site's stop_before"):
        held_plan(made, 5.0, None)


def read_back(made: Plan, folder: Path) -> Plan:
    from torusrun.orchestrator.run.plan.plan_files import write_attempt

    run = RunFolder(folder / made.run_id)
    run.attempt(1).folder.mkdir(parents=True)
    write_attempt(run.attempt(1), attempt_plan.first(made))
    return read_plan(run, 1)


RUNNING, OVER = Status(State.RUNNING), Status(State.COMPLETED, "the scheduler says COMPLETED")
NODE_FAIL = Status(State.NODE_FAIL, "node3 is gone")


@pytest.mark.parametrize(
    ("started", "job", "state", "says"),
    [
        (False, Status(State.PENDING, "it waits for free nodes"), State.PENDING, "itself waits: it waits for free"),
        (False, RUNNING, State.PENDING, "still being checked"),
        (True, RUNNING, State.RUNNING, ""),
        (False, OVER, State.CANCELLED, "ended before this attempt began"),
        (True, OVER, State.LOST, "the held allocation"),
        (True, NODE_FAIL, State.NODE_FAIL, "node3 is gone"),
        (True, Status(State.TIMEOUT, "DUE TO TIME LIMIT"), State.TIMEOUT, "TIME LIMIT"),
        (True, Status(State.UNKNOWN, "it did not answer"), State.UNKNOWN, "did not answer"),
    ],
)
def test_the_job_is_the_allocations_and_not_the_attempts(
    held: RunFolder, started: bool, job: Status, state: State, says: str
) -> None:
    run = in_it(held, "run")
    if started:
        ledger.append(run.ledger, Started(1, job="1.1", hosts=("here",)))
    record = read_record(run)
    status = resolve(record.events, 1, None, in_hold(record, job), time.time() + 3600)
    assert status.state is state and says in status.reason


@pytest.fixture
def job(held: RunFolder) -> Iterator[str]:
    """The job of the held allocation, at work."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        job = job_id_of(Path(f"/proc/{process.pid}/stat").read_text())
        ledger.append(held.ledger, Submitted(1, job=job, scheduler="local"))
        ledger.append(held.ledger, Started(1, job=job, hosts=("here",)))
        yield job
        process.kill()


def later(run: RunFolder) -> View:
    """The run once a scheduler would show a job that was submitted with it."""
    return views([run], time.time() + 600.0)[0]


@pytest.mark.parametrize("inbox", ["inbox", "closed_inbox"])
def test_a_request_outlives_its_client(held: RunFolder, job: str, inbox: str) -> None:
    """Killed after it handed the attempt in, and before the ledger names the job; no keeper has looked yet."""
    run, attempt = in_it(held, "run", cut_off=True), held.attempt(1)
    allocation.ask(attempt, AskedOf(run.attempt(1)))
    attempt.inbox.rename(getattr(attempt, inbox))
    view = later(run)
    assert (view.state, view.job) == (State.PENDING, job), view
    ledger.append(run.ledger, Started(1, job=job, hosts=("here",)))
    assert later(run).state is State.RUNNING


def test_the_keeper_knows_an_attempt_whose_client_was_killed(held: RunFolder, job: str) -> None:
    """Recorded before the request is removed: there is no moment in which nobody knows of the attempt."""
    run, attempt = in_it(held, "run", "sleep 600", cut_off=True), held.attempt(1)
    allocation.ask(attempt, AskedOf(run.attempt(1)))
    kept = keeper_of(held)
    kept._take(attempt.inbox)
    begin_first(kept)
    try:
        view = later(run)
        assert (view.state, view.job, view.reason) == (State.PENDING, job, f"begins in {held.run_id}")
    finally:
        kept.signal(signal.SIGKILL)
        assert kept.child and kept.child.wait()


def test_a_client_that_was_killed_before_its_request_leaves_an_attempt_to_resume(held: RunFolder, job: str) -> None:
    run, other = in_it(held, "run", cut_off=True), in_it(held, "other")
    allocation.ask(held.attempt(1), AskedOf(other.attempt(1)))
    (view,) = views([run])
    assert view.state is State.UNKNOWN and "look for a job" not in view.reason, view
    view = later(run)
    assert view.state is State.LOST and f"{held.run_id} has no request for it" in view.reason, view
    assert view.reason.endswith("`torusrun resume` submits it")


def test_an_attempt_that_waits_says_for_which_ones(held: RunFolder) -> None:
    now_s = time.time()
    KeeperState(os.getpid(), "here", now_s + 60, 60, now_s, "first", ("second", "third")).write(held.attempt(1))
    third = in_hold(read_record(in_it(held, "third")), RUNNING)
    assert third and third.reason == f"waits in {held.run_id} for first, second"
    said = told_by_keeper(read_record(held), RUNNING).reason
    assert said.endswith("first is at work, and 2 more to come")
    held.attempt(1).keeper.write_text("{")
    third = in_hold(read_record(in_it(held, "fourth")), RUNNING)
    assert third and "keeper.json: this is damaged" in third.reason


def test_an_allocation_is_found_by_its_name_among_those_that_are_over(held: RunFolder, monkeypatch: Patch) -> None:
    monkeypatch.setattr(poll, "look", running)
    over = make(held.folder.parents[1] / "run.yaml", End(State.COMPLETED, "given back"))
    allocation.make(over, 60.0)
    for word in ("made", "last"):
        assert find(word).run == held
    End(State.COMPLETED, "given back").write(held.attempt(1).end)
    with pytest.raises(UserError, match="begins the ids of 2 runs"):
        find("made")
    with pytest.raises(UserError, match="there is no held allocation"):
        find("last")


def test_an_allocation_whose_keeper_shows_that_it_lives_needs_no_scheduler(held: RunFolder, monkeypatch: Patch) -> None:
    def unanswered(run: RunFolder) -> View:
        return replace(views([run])[0], state=State.UNKNOWN, reason="squeue did not answer")

    monkeypatch.setattr(poll, "look", unanswered)
    KeeperState(1, "here", time.time() + 60, 60.0, time.time()).write(held.attempt(1))
    os.utime(held.attempt(1).pulse)
    found = find(held.run_id)
    assert (found.run, found.job) == (held, "999999999.1")
    os.utime(held.attempt(1).pulse, (0, time.time() - 60))
    with pytest.raises(UserError, match=r"is UNKNOWN \(squeue did not answer\): no attempt can be started in it"):
        find(held.run_id)
    os.utime(held.attempt(1).pulse)
    held.attempt(1).inbox.rename(held.attempt(1).closed_inbox)
    with pytest.raises(UserError, match="no attempt can be started"):
        find(held.run_id)


def running(run: RunFolder) -> View:
    return replace(views([run])[0], state=State.RUNNING)
