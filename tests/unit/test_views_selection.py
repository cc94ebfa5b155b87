"""Which runs `status` shows, and what it asks the schedulers for."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from tests.unit.run_folders import make, write_specs
from tests.unit.verbs import prints, refuses
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.folder import index, ledger
from torusrun.orchestrator.run.folder.events import Submitted
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state import selection
from torusrun.orchestrator.run.state.poll import views
from torusrun.orchestrator.schedulers.client import Client

Shown = Callable[..., list[str]]


@pytest.fixture
def runs(home: Path) -> list[RunFolder]:
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


def test_newest_last_and_by_name_or_pattern(runs: list[RunFolder], shown: Shown) -> None:
    done, failed, other = (run.run_id for run in runs)
    assert shown() == [done, failed, other]
    assert shown("made-*") == [done, failed]
    assert shown(other, "made-*", done) == [done, failed, other]
    assert shown("last") == shown("[e]lse*") == shown(f"{runs[2].folder}/") == [other]


def test_by_state_site_and_time(runs: list[RunFolder], shown: Shown) -> None:
    done, failed, other = (run.run_id for run in runs)
    assert shown("--state", "failed") == [failed, other]
    assert shown("--state", "Completed,lost") == [done]
    assert shown("--site", "other") == [other]
    assert shown("--site", "site", "--state", "FAILED") == [failed]
    assert shown("--since", "2h") == [done, failed, other]
    assert shown("--since", "2099-01-01") == []


def test_a_run_whose_time_nobody_knows_is_not_hidden(runs: list[RunFolder], shown: Shown) -> None:
    runs[0].ledger.unlink()
    assert shown("--since", "2099-01-01") == [runs[0].run_id]


def test_a_selection_that_matches_no_run(runs: list[RunFolder], capsys: pytest.CaptureFixture[str]) -> None:
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


def test_a_site_without_runs_is_no_mistake(runs: list[RunFolder], capsys: pytest.CaptureFixture[str]) -> None:
    """Whether it is named, or by the path of its file."""
    for word in ("abci-v", str(runs[0].folder.parents[1] / "site.yaml"), "~/other.yaml"):
        assert prints(capsys, "status", "--site", word, "--since", "2099-01-01") == "no run matches\n"


def test_json_has_the_old_and_the_new_fields(runs: list[RunFolder], capsys: pytest.CaptureFixture[str]) -> None:
    main(["status", runs[2].run_id, "--json"])
    (view,) = json.loads(capsys.readouterr().out)["runs"]
    assert (view["state"], view["step"], view["total_steps"], view["accuracy"]) == ("FAILED", 40, 40, None)
    assert (view["site"], view["eta_s"], view["loss"], view["newest_result"]) == ("other", None, 1 / 40, "loss")
    assert view["age_s"] is None and view["submitted_s"] <= time.time(), "a run that is over has no age"


def test_many_runs_cost_one_scheduler_query(runs: list[RunFolder], monkeypatch: pytest.MonkeyPatch) -> None:
    """And runs of other sites are not asked about at all."""
    asked: list[list[str]] = []

    def poll(client: Client, jobs: list[str]) -> dict[str, Status]:
        asked.append(list(jobs))
        return dict.fromkeys(jobs, Status(State.RUNNING))

    monkeypatch.setattr(Client, "poll", poll)
    for number in range(40):
        run = RunFolder(runs[number % 3].folder.with_name(f"many-{number:02d}"))
        run.attempt(1).folder.mkdir(parents=True)
        run.plan.write_text(runs[number % 3].plan.read_text())
        with index.announced(run):
            ledger.append(run.ledger, Submitted(1, job=f"{number}.1", scheduler="local"))
    found = views(index.runs())
    assert [len(jobs) for jobs in asked] == [40] and sum(view.state is State.RUNNING for view in found) == 40
    views(index.runs(), keep=selection.Selection(site="other").asks_about)
    assert [len(jobs) for jobs in asked] == [40, 13]
