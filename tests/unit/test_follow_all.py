"""Many runs followed at once: which folders are read, and when the scheduler is asked."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.unit.run_folders import DONE, make, write_specs
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Ended, Started, Submitted
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state import follow
from torusrun.orchestrator.run.state.follow import Followed, follow_all
from torusrun.orchestrator.run.state.record import read_record
from torusrun.orchestrator.schedulers.client import Client
from torusrun.training.reporting.metrics import Metrics


@dataclass
class Seen:
    """What a scheduler says of each job, and what it was asked and which folders were read."""

    states: dict[str, State] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)

    def taken(self) -> tuple[list[str], list[str]]:
        """(the jobs that were asked about, the folders that were read since the last call)."""
        found = sorted(self.asked), sorted(self.read)
        self.asked, self.read = [], []
        return found


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    found = Seen()

    def poll(client: Client, jobs: list[str]) -> dict[str, Status]:
        found.asked += jobs
        return {job: Status(found.states[job]) for job in jobs}

    def reading(run: RunFolder):  # type: ignore[no-untyped-def]
        found.read.append(run.run_id)
        return read_record(run)

    monkeypatch.setattr(Client, "poll", poll)
    monkeypatch.setattr(follow, "read_record", reading)
    monkeypatch.setattr(follow, "FIRST_POLL_S", 3600.0)
    monkeypatch.setattr(follow, "WAITING_LOOK_S", 0.0)
    monkeypatch.setattr(follow, "OVER_LOOK_S", 0.0)
    return found


@pytest.fixture
def runs(home: Path, seen: Seen) -> list[RunFolder]:
    """A run that is running, one that waits, and one that is over."""
    over = make(write_specs(home), DONE)
    found = [_copy(over, "running", "1.1"), _copy(over, "waiting", "2.1"), over]
    for run, kept in ((found[0], 3), (found[1], 2)):
        lines = run.ledger.read_text().splitlines(keepends=True)
        run.ledger.write_text("".join(lines[:kept]))
        run.attempt(1).end.unlink()
        run.attempt(1).done.unlink()
        for path in run.attempt(1).ranks.glob("*.end.json"):
            path.unlink()
    found[1].metrics.unlink()
    seen.states = {"1.1": State.RUNNING, "2.1": State.PENDING}
    return found


def _copy(run: RunFolder, name: str, job: str) -> RunFolder:
    copy = RunFolder(run.folder.with_name(name))
    shutil.copytree(run.folder, copy.folder, symlinks=True)
    copy.ledger.write_text(copy.ledger.read_text().replace("999999999.1", job))
    return copy


def begun(runs: list[RunFolder], seen: Seen) -> Followed:
    followed = Followed(runs)
    assert not followed.over, "before the first look nothing is known"
    assert [view.state for view in followed.look()] == [State.RUNNING, State.PENDING, State.COMPLETED]
    assert seen.taken()[0] == ["1.1", "2.1"], "nobody is asked about a run that is over"
    return followed


def test_while_nothing_changes_nothing_is_read_or_queried_and_new_steps_are_shown(
    runs: list[RunFolder], seen: Seen
) -> None:
    followed = begun(runs, seen)
    first = followed.look()
    assert [view.state for view in followed.look()] == [view.state for view in first]
    assert seen.taken() == ([], []) and not followed.over
    followed = begun(runs, seen)
    followed.look()
    Metrics(runs[0].metrics, 1).write("step", step=41, total_steps=50, loss=0.25)
    running = followed.look()[0]
    assert (running.step, running.loss, seen.taken()) == (41, 0.25, ([], []))


def test_a_run_that_begins_or_ends_is_read_and_its_scheduler_asked_of_it_alone(
    runs: list[RunFolder], seen: Seen
) -> None:
    followed = begun(runs, seen)
    ledger.append(runs[1].ledger, Started(1, job="2.1", hosts=("node1",), grid=(2, 2)))
    seen.states["2.1"] = State.RUNNING
    assert [view.state for view in followed.look()[:2]] == [State.RUNNING, State.RUNNING]
    assert seen.taken() == (["2.1"], ["waiting"])
    for run in runs[:2]:
        DONE.write(run.attempt(1).end)
    assert [view.state for view in followed.look()] == [State.COMPLETED] * 3
    assert seen.taken()[0] == [] and followed.over


def test_a_run_that_is_resumed_is_seen(runs: list[RunFolder], seen: Seen) -> None:
    followed = begun(runs, seen)
    runs[2].attempt(2).folder.mkdir()
    ledger.append(runs[2].ledger, Submitted(2, job="3.1", scheduler="local"))
    seen.states["3.1"] = State.PENDING
    again = followed.look()[2]
    assert (again.state, again.attempt, seen.taken()[0]) == (State.PENDING, 2, ["3.1"])


def test_when_it_is_time_the_scheduler_is_asked_about_all_that_are_not_over(
    runs: list[RunFolder], seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "FIRST_POLL_S", 0.0)
    followed = begun(runs, seen)
    seen.states["1.1"] = State.NODE_FAIL
    assert [view.state for view in followed.look()] == [State.NODE_FAIL, State.PENDING, State.COMPLETED]
    assert seen.taken()[0] == ["1.1", "2.1"]
    followed.look()
    assert seen.taken()[0] == ["2.1"]


def test_all_are_followed_to_their_ends(runs: list[RunFolder], seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "LOOK_S", 0.0)
    monkeypatch.setattr(follow, "REST", 0)
    following = follow_all(runs)
    states = [[view.state for view in next(following)]]
    for n in (0, 1):
        ledger.append(runs[n].ledger, Ended(1, State.CANCELLED, "cancelled by its user"))
        states.append([view.state for view in next(following)])
    assert states[-1] == [State.CANCELLED, State.CANCELLED, State.COMPLETED]
    assert next(following, None) is None


def test_no_runs_are_over_at_once() -> None:
    assert list(follow_all([])) == [[]]


def test_what_takes_long_is_done_seldom(runs: list[RunFolder], seen: Seen) -> None:
    followed = begun(runs, seen)
    assert followed.rest_s == follow.LOOK_S
    followed._cost_s = 0.1
    assert followed.rest_s == 0.1 * follow.REST
    followed._cost_s = 100.0
    assert followed.rest_s == follow.LONGEST_REST_S


def test_a_file_of_a_run_that_is_no_file_is_no_change(runs: list[RunFolder], seen: Seen) -> None:
    runs[0].metrics.unlink()
    os.mkfifo(runs[0].metrics)
    followed = begun(runs, seen)
    followed.look()
    assert seen.taken() == ([], [])
