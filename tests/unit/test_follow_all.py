"""Many runs followed at once: which folders are read, when the scheduler is asked, and which lines are printed."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.unit.run_folders import DONE, make, write_specs
from tests.unit.test_views_table import view
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Ended, Started, Submitted
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state import follow
from torusrun.orchestrator.run.state.follow import Followed, follow_all
from torusrun.orchestrator.run.state.record import read_record
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.schedulers.client import Client
from torusrun.orchestrator.show.screen import detail, printed
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


# `watch` without a terminal: a line for each change of each run, a table at the end, and an exit code for all.


Said = pytest.CaptureFixture[str]


def test_one_run_that_is_over_has_one_line_and_its_table(home: Path, capsys: Said) -> None:
    run = make(write_specs(home), DONE)
    assert main(["watch", run.run_id]) == 0
    said = capsys.readouterr()
    assert said.err == f"{run.run_id} COMPLETED step 40/40, loss 0.0250, accuracy 97.00%\n"
    assert "state          COMPLETED: all 4 ranks ended well\n" in said.out


def test_of_many_runs_one_that_failed_makes_the_exit_code(home: Path, capsys: Said) -> None:
    runs = [make(write_specs(home), DONE), make(write_specs(home), DONE)]
    assert main(["watch", "made-*"]) == 0
    said = capsys.readouterr()
    assert [line.split()[:2] for line in said.err.splitlines()] == [[run.run_id, "COMPLETED"] for run in runs]
    assert [line.split()[0] for line in said.out.splitlines()] == ["RUN", *(run.run_id for run in runs)]
    failed = make(write_specs(home), End(State.FAILED, "rank 1 ended with exit code 1"))
    assert main(["watch", runs[0].run_id, failed.run_id]) == 1


def test_if_no_run_is_at_work_the_verb_says_so(home: Path, capsys: Said) -> None:
    for _ in range(2):
        assert main(["watch"]) == 0
        assert capsys.readouterr().out == "no run is pending or running; `torusrun watch last` shows the newest one\n"
        make(write_specs(home), DONE)


def test_lines_come_at_changes_and_now_and_then(monkeypatch: pytest.MonkeyPatch, capsys: Said) -> None:
    one = [view("one", State.PENDING, folder="/1"), view("one", folder="/1", step=1), view("one", folder="/1", step=2)]
    other = [view("other", folder="/2", step=step) for step in (7, 8, 9)]
    looks: list[list[View]] = [list(pair) for pair in zip(one, other, strict=True)]
    runs = [RunFolder(Path("/1")), RunFolder(Path("/2"))]
    monkeypatch.setattr(printed, "follow_all", lambda runs: iter(looks))
    assert printed.show(runs) == looks[-1]
    assert capsys.readouterr().err.splitlines() == ["one PENDING", "other RUNNING step 7", "one RUNNING step 1"]
    monkeypatch.setattr(printed, "LINE_EVERY_S", 0.0)
    monkeypatch.setattr(printed, "LINES_PER_S", float("inf"))
    printed.show(runs)
    assert len(capsys.readouterr().err.splitlines()) == 6


def test_the_curve_of_long_metrics_begins_near_their_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detail, "MOST_BYTES", 1000)
    path = tmp_path / "metrics.jsonl"
    rows = [{"t": 1.0, "attempt": 1, "event": "step", "step": step, "loss": 1.0} for step in range(1000)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    steps = [step for step, _ in detail.Losses(path).read()]
    assert steps[-1] == 999 and steps[0] > 900, "the whole file was read"
