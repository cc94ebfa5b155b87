"""How a run stands by its folder alone: which attempt counts, whose run it is, what is asked and written."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from tests.unit.clock import Clock
from tests.unit.run_folders import DONE, make, write_specs
from tests.unit.verbs import Capsys, Patch, prints, refuses
from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.folder import claim, index, ledger
from torusrun.orchestrator.run.folder.events import Ended, Refused, Started, Submitted, Submitting
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state import selection
from torusrun.orchestrator.run.state.follow import RECORDS_LAG_S, follow
from torusrun.orchestrator.run.state.poll import views
from torusrun.orchestrator.run.state.record import read_record
from torusrun.orchestrator.schedulers.client import Client
from torusrun.orchestrator.show.screen.printed import words
from torusrun.training.reporting.metrics import Metrics

FAILED = End(State.FAILED, "rank 1 was killed")
SIGTERMED = End(State.CANCELLED, "received SIGTERM from outside", certain=False)
GONE = "999999999.1"
STRANGER = 12345


@pytest.fixture
def run(home: Path) -> RunFolder:
    return make(write_specs(home), FAILED)


def state(run: RunFolder, now_s: float | None = None) -> State:
    return views([run], now_s)[0].state


def test_a_refused_resume_does_not_hide_the_attempts_after_it(run: RunFolder) -> None:
    ledger.append(run.ledger, Submitting(2, name="made"))
    assert (read_record(run).attempt, state(run)) == (1, State.FAILED), "its client was killed before it made a folder"
    ledger.append(run.ledger, Refused(2, reason="no such queue"))
    assert (read_record(run).attempt, state(run)) == (1, State.FAILED)
    run.attempt(2).folder.mkdir()
    ledger.append(run.ledger, Submitting(2, name="made"))
    ledger.append(run.ledger, Submitted(2, job=GONE, scheduler="local"))
    DONE.write(run.attempt(2).end)
    assert (read_record(run).attempt, state(run)) == (2, State.COMPLETED)


def test_a_job_that_is_gone_while_its_ranks_are_at_work_is_not_lost(run: RunFolder) -> None:
    run.attempt(2).folder.mkdir()
    ledger.append(run.ledger, Submitted(2, job=GONE, scheduler="local"))
    ledger.append(run.ledger, Started(2, job=GONE, hosts=("here",)))
    lock = claim.hold(run.attempt(2))
    view = views([run])[0]
    assert (view.state, "they hold attempts/2/alive" in view.reason) == (State.UNKNOWN, True), view
    os.close(lock)
    assert state(run) is State.LOST


def test_a_job_that_its_scheduler_forgot_because_its_dependency_failed_is_reported_as_dropped(run: RunFolder) -> None:
    """As a PBS server without history does."""
    later_s = time.time() + 60
    awaited = make(run.folder.parent.parent / "run.yaml", FAILED)
    run.attempt(2).folder.mkdir()
    ledger.append(run.ledger, Submitting(2, name="made", after=(str(awaited.folder),)))
    ledger.append(run.ledger, Submitted(2, job=GONE, scheduler="local"))
    view = views([run], later_s)[0]
    reason = f"dropped by its dependency, it never ran: {awaited.run_id} is FAILED"
    assert (view.state, view.reason) == (State.CANCELLED, reason)


def test_an_attempt_that_the_ledger_lost_is_still_the_newest(run: RunFolder) -> None:
    run.attempt(2).folder.mkdir()
    run.attempt(2).plan.write_bytes(run.plan.read_bytes())
    DONE.write(run.attempt(2).end)
    run.ledger.write_bytes(run.ledger.read_bytes()[:-30])
    view = views([run])[0]
    assert (view.attempt, view.state) == (2, State.COMPLETED)
    assert view.damaged[0].startswith("ledger.jsonl: 1 of 4 lines cannot be read; the state comes from the folders")


def test_hosts_and_grid_come_from_the_placement_where_ledger_and_plans_are_lost(run: RunFolder) -> None:
    for path in (run.plan, run.attempt(1).plan, run.ledger):
        path.unlink()
    view = views([run])[0]
    assert (view.state, view.grid, view.ranks, view.hosts) == (State.FAILED, (2, 2), 4, ("here",))
    assert view.run == run.run_id and view.scheduler == ""
    assert "`torusrun logs` and `torusrun collect` still work" in view.damaged[0]


def test_a_job_just_submitted_that_nobody_shows_is_unknown_and_later_lost(run: RunFolder) -> None:
    run.attempt(2).folder.mkdir()
    ledger.append(run.ledger, Submitting(2, name="made"))
    ledger.append(run.ledger, Submitted(2, job=GONE, scheduler="local"))
    now_s = ledger.events(run.ledger)[-1].time_s
    view = views([run], now_s + 7)[0]
    assert (view.state, view.reason) == (State.UNKNOWN, "submitted 7 s ago; local does not show it yet")
    assert state(run, now_s + 31) is State.LOST


def lose_the_end(run: RunFolder) -> None:
    """As if the attempt were still going on."""
    run.attempt(1).end.unlink()
    whole = run.ledger.read_text().splitlines(keepends=True)
    run.ledger.write_text("".join(whole[:-1]))


@pytest.mark.needs("users")
def test_a_run_of_somebody_else_is_read_and_neither_asked_about_nor_written_to(run: RunFolder) -> None:
    lose_the_end(run)
    before, asked = run.ledger.read_bytes(), process.CALLS.total()
    os.chown(run.folder, STRANGER, STRANGER)
    view = views([run])[0]
    assert view.state is State.UNKNOWN and f"it belongs to user {STRANGER}" in view.reason
    assert (view.step, view.hosts) == (40, ("here",))
    assert process.CALLS.total() == asked and run.ledger.read_bytes() == before
    FAILED.write(run.attempt(1).end)
    assert state(run) is State.FAILED


def test_a_run_that_ends_while_its_scheduler_hangs_is_judged_by_its_folder(run: RunFolder, monkeypatch: Patch) -> None:
    lose_the_end(run)

    def hang(client: Client, jobs: list[str]) -> dict[str, Status]:
        FAILED.write(run.attempt(1).end)
        return {job: Status(State.UNKNOWN, "squeue did not answer within 3 s") for job in jobs}

    monkeypatch.setattr(Client, "poll", hang)
    assert (views([run])[0].state, views([run])[0].reason) == (State.FAILED, FAILED.reason)


@pytest.mark.parametrize(
    ("written", "completed"),
    [
        ('{"schema": 1, "attempt": 1, "step": 40}', True), ('{"attempt": 2}', False), ('{"attempt": true}', False),
        ('{"attempt": "1"}', False), ("{}", False), ("[1]", False), ("", False), ("\0" * 99, False),
    ],
)  # fmt: skip
def test_the_record_that_a_training_is_done_outweighs_the_end_of_its_job(
    written: str, completed: bool, run: RunFolder
) -> None:
    run.attempt(1).done.write_text(written)
    assert state(run) is (State.COMPLETED if completed else State.FAILED)
    lose_the_end(run)
    SIGTERMED.write(run.attempt(1).end)
    assert state(run) is (State.COMPLETED if completed else State.CANCELLED)
    run.attempt(1).end.unlink()
    assert state(run) is (State.COMPLETED if completed else State.CANCELLED), "an end that was seen must be kept"


def test_a_done_record_that_is_a_pipe_or_a_link_is_not_waited_for(run: RunFolder, tmp_path: Path) -> None:
    os.mkfifo(run.attempt(1).done)
    assert state(run) is State.FAILED
    run.attempt(1).done.unlink()
    (tmp_path / "done.json").write_text('{"attempt": 1}')
    run.attempt(1).done.symlink_to(tmp_path / "done.json")
    assert state(run) is State.FAILED


def test_a_scheduler_of_another_version_is_no_reason_to_show_nothing(run: RunFolder) -> None:
    lose_the_end(run)
    run.plan.write_text(run.plan.read_text().replace('"scheduler": "local"', '"scheduler": "cron"'))
    view = views([run])[0]
    assert view.state is State.UNKNOWN and "there is no scheduler 'cron'" in view.reason


def test_a_folder_that_is_gone_is_named(run: RunFolder) -> None:
    shutil.rmtree(run.attempts)
    view = views([run])[0]
    assert view.state is State.FAILED and view.damaged == ("attempts/1: this folder is missing, and its logs with it",)
    shutil.rmtree(run.folder)
    view = views([run])[0]
    assert view.state is State.UNKNOWN and "is not there" in view.reason


def test_a_plan_that_asks_for_an_endless_wait_is_bounded(run: RunFolder) -> None:
    text = run.plan.read_text()
    run.plan.write_text(text.replace('"command_timeout": "30.000000s"', '"command_timeout": "9999h"'))
    plan = read_record(run).plan
    assert plan is not None and plan.command_timeout_s == 3600


def test_watching_a_run_of_unknown_end_ends(run: RunFolder, monkeypatch: Patch) -> None:
    clock = Clock(time.time())
    began_s = clock.now_s
    monkeypatch.setattr("torusrun.orchestrator.run.state.follow.time", clock)
    run.ledger.unlink()
    run.attempt(1).end.unlink()
    *_, view = follow(run)
    assert RECORDS_LAG_S < clock.now_s - began_s < 2 * RECORDS_LAG_S
    assert view.state is State.UNKNOWN and "has no record of its end" in view.reason


@pytest.fixture
def running(run: RunFolder, monkeypatch: Patch) -> RunFolder:
    """A run without an end that its scheduler calls running, long after its last step, of 40 that were to be 50."""
    lose_the_end(run)
    for path in run.attempt(1).ranks.glob("*.end.json"):
        path.unlink()
    rows = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    began_s = time.time() - 250
    for row in rows:
        row.update(t=began_s + row["step"] / 4, total_steps=50)
    run.metrics.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    os.utime(run.metrics, (rows[-1]["t"], rows[-1]["t"]))

    def poll(client: Client, jobs: list[str]) -> dict[str, Status]:
        return {job: Status(State.RUNNING, "being deleted", ("node2", "node1")) for job in jobs}

    monkeypatch.setattr(Client, "poll", poll)
    return run


def test_a_running_run_without_new_steps_says_so_after_its_reason(running: RunFolder, capsys: Capsys) -> None:
    (view,) = views([running])
    assert (view.state, view.reason, view.pause) == (State.RUNNING, "being deleted", "no step for 4 min, usual 0.25 s")
    assert view.usual_step_s == pytest.approx(0.25) and view.last_step_age_s == pytest.approx(240, abs=30)
    assert view.as_json()["usual_step_s"] == view.usual_step_s
    main(["status", running.run_id])
    assert capsys.readouterr().out.endswith("\n    being deleted; no step for 4 min, usual 0.25 s\n")
    shown = words(view, "")
    assert shown.startswith(f"{running.run_id} RUNNING step 40/50, ")
    assert shown.endswith(", being deleted; no step for 4 min, usual 0.25 s")


def test_a_resumed_attempt_shows_no_figures_of_the_one_before(running: RunFolder) -> None:
    running.attempt(2).folder.mkdir()
    ledger.append(running.ledger, Submitting(2, name="made", resumes="step-00000040"))
    ledger.append(running.ledger, Submitted(2, job="8", scheduler="local"))
    (view,) = views([running])
    assert (view.attempt, view.step, view.loss, view.accuracy, view.eta_s) == (2, None, None, None, None)
    assert words(view, "").endswith("being deleted; the job starts on its first node; resumes from step-00000040")
    Metrics(running.metrics, 2).write("start", step=40, total_steps=50)
    (view,) = views([running])
    assert (view.step, view.total_steps, view.loss) == (40, 50, None)
    assert view.waiting == "the ranks have met; the first step is not recorded yet"
    ledger.append(running.ledger, Ended(2, State.CANCELLED, "by its user"))
    (view,) = views([running])
    assert (view.step, view.loss) == (40, 1 / 40), "of the run as a whole"


def test_a_program_that_reports_no_steps_does_not_pause(running: RunFolder) -> None:
    running.metrics.unlink()
    assert views([running])[0].pause == "", "it began a moment ago"
    later_s = time.time() + 300
    assert views([running], later_s)[0].pause == "no step yet, started 5 min ago"
    plan = json.loads(running.plan.read_text())
    plan["spec"]["command"] = ["true"]
    running.plan.write_text(json.dumps(plan))
    assert views([running], later_s)[0].pause == ""


def test_what_the_folder_makes_one_suspect_is_reported_and_the_state_stays(running: RunFolder) -> None:
    attempt, now_s = running.attempt(1), time.time()
    attempt.pulse.write_text("node1\n")
    os.utime(attempt.pulse, (now_s - 40, now_s - 40))
    (view,) = views([running], now_s)
    assert view.state is State.RUNNING
    assert view.reason.startswith("being deleted; suspected: the supervisor on node1 is silent for 4")
    SIGTERMED.write(attempt.end)
    assert views([running])[0].reason == "ending: received SIGTERM from outside; being deleted"


@pytest.mark.parametrize("ahead_s", [7200, -7200])
@pytest.mark.parametrize("whose", ["mine", "the node's"])
def test_a_clock_that_is_wrong_raises_no_alarm(
    running: RunFolder, whose: str, ahead_s: float, monkeypatch: Patch
) -> None:
    """The file system writes the times of files by its own clock."""
    os.utime(running.metrics)
    newest_s = running.metrics.stat().st_mtime + (ahead_s if whose == "the node's" else 0.0)
    rows = [json.loads(line) for line in running.metrics.read_text().splitlines()]
    running.metrics.write_text("".join(f"{json.dumps({**r, 't': r['t'] - rows[-1]['t'] + newest_s})}\n" for r in rows))
    running.attempt(1).pulse.write_text("node1\n")
    if whose == "mine":
        clock = time.time
        monkeypatch.setattr(time, "time", lambda: clock() + ahead_s)
    (view,) = views([running])
    assert view.state is State.RUNNING and view.pause == "" and "silent" not in view.reason, view
    assert view.last_step_age_s is not None and view.last_step_age_s < 60
    assert view.eta_s == pytest.approx(max(2.5 - view.last_step_age_s, 0.0), abs=0.1)
    running.metrics.unlink()
    if whose == "mine":
        assert views([running])[0].pause == ""


def test_a_run_that_is_watched_ages_while_nothing_changes(running: RunFolder, monkeypatch: Patch) -> None:
    monkeypatch.setattr("torusrun.orchestrator.run.state.follow.LOOK_S", 0.05)
    monkeypatch.setattr("torusrun.orchestrator.run.state.follow.FIRST_POLL_S", 60.0)
    following = follow(running)
    first, second, third = (next(following) for _ in range(3))
    assert first.last_step_age_s and second.last_step_age_s and third.last_step_age_s
    assert first.last_step_age_s < second.last_step_age_s < third.last_step_age_s
    assert first.reason == third.reason == "being deleted"


# Which runs `status` shows, and what it asks the schedulers for.


Shown = Callable[..., list[str]]


@pytest.fixture
def three_runs(home: Path) -> list[RunFolder]:
    """Three runs: one that is done, and two that failed; the last one at another site."""
    spec = write_specs(home)
    done, failed = make(spec, End(State.COMPLETED, "well")), make(spec, End(State.FAILED, "badly"))
    (home / "other.yaml").write_text((home / "site.yaml").read_text())
    spec.write_text(spec.read_text().replace("./site.yaml", "./other.yaml").replace("made", "else"))
    return [done, failed, make(spec, End(State.FAILED, "badly"))]


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Shown:
    def ids(*words: str) -> list[str]:
        return [view["run"] for view in json.loads(prints(capsys, "status", "--json", *words))["runs"]]

    return ids


def test_newest_last_and_by_name_or_pattern(three_runs: list[RunFolder], shown: Shown) -> None:
    done, failed, other = (run.run_id for run in three_runs)
    assert shown() == [done, failed, other]
    assert shown("made-*") == [done, failed]
    assert shown(other, "made-*", done) == [done, failed, other]
    assert shown("last") == shown("[e]lse*") == shown(f"{three_runs[2].folder}/") == [other]


def test_by_state_site_and_time(three_runs: list[RunFolder], shown: Shown) -> None:
    done, failed, other = (run.run_id for run in three_runs)
    assert shown("--state", "failed") == [failed, other]
    assert shown("--state", "Completed,lost") == [done]
    assert shown("--site", "other") == [other]
    assert shown("--site", "site", "--state", "FAILED") == [failed]
    assert shown("--since", "2h") == [done, failed, other]
    assert shown("--since", "2099-01-01") == []


def test_a_run_whose_time_nobody_knows_is_not_hidden(three_runs: list[RunFolder], shown: Shown) -> None:
    three_runs[0].ledger.unlink()
    assert shown("--since", "2099-01-01") == [three_runs[0].run_id]


def test_a_selection_that_matches_no_run(three_runs: list[RunFolder], capsys: pytest.CaptureFixture[str]) -> None:
    assert prints(capsys, "status", "--state", "pending") == "no run matches\n"
    assert "no run's name matches 'x*'" in refuses(capsys, "status", "x*")


@pytest.mark.parametrize("text", ["", "yesterday", "2h3", "-2h", "2026-13-01", "9" * 400])
def test_an_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="is not a time; write a time ago as in 90m"):
        selection.moment("--since", text)


def test_the_forms_of_a_time() -> None:
    assert selection.moment("--since", "2h", 10_000.0) == 2800.0
    assert selection.moment("--since", "2026-11-01") == datetime(2026, 11, 1).timestamp()
    assert selection.moment("--since", "2026-11-01T14:30") == datetime(2026, 11, 1, 14, 30).timestamp()
    assert selection.moment("--since", "2026-11-01T14:30+00:00") == 1793543400


def test_a_site_without_runs_is_no_mistake(three_runs: list[RunFolder], capsys: pytest.CaptureFixture[str]) -> None:
    """Whether it is named, or by the path of its file."""
    for word in ("abci-v", str(three_runs[0].folder.parents[1] / "site.yaml"), "~/other.yaml"):
        assert prints(capsys, "status", "--site", word, "--since", "2099-01-01") == "no run matches\n"


def test_json_has_the_old_and_the_new_fields(three_runs: list[RunFolder], capsys: pytest.CaptureFixture[str]) -> None:
    main(["status", three_runs[2].run_id, "--json"])
    (view,) = json.loads(capsys.readouterr().out)["runs"]
    assert (view["state"], view["step"], view["total_steps"], view["accuracy"]) == ("FAILED", 40, 40, None)
    assert (view["site"], view["eta_s"], view["loss"], view["newest_result"]) == ("other", None, 1 / 40, "loss")
    assert view["age_s"] is None and view["submitted_s"] <= time.time(), "a run that is over has no age"


def test_many_runs_cost_one_scheduler_query(three_runs: list[RunFolder], monkeypatch: pytest.MonkeyPatch) -> None:
    """And runs of other sites are not asked about at all."""
    asked: list[list[str]] = []

    def poll(client: Client, jobs: list[str]) -> dict[str, Status]:
        asked.append(list(jobs))
        return dict.fromkeys(jobs, Status(State.RUNNING))

    monkeypatch.setattr(Client, "poll", poll)
    for number in range(40):
        run = RunFolder(three_runs[number % 3].folder.with_name(f"many-{number:02d}"))
        run.attempt(1).folder.mkdir(parents=True)
        run.plan.write_text(three_runs[number % 3].plan.read_text())
        with index.announced(run):
            ledger.append(run.ledger, Submitted(1, job=f"{number}.1", scheduler="local"))
    found = views(index.runs())
    assert [len(jobs) for jobs in asked] == [40] and sum(view.state is State.RUNNING for view in found) == 40
    views(index.runs(), keep=selection.Selection(site="other").asks_about)
    assert [len(jobs) for jobs in asked] == [40, 13]
