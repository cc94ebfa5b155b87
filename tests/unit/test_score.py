"""What a run took beside its forecast, by part: in the ledger, and in the table of `torusrun score`."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.run_folders import STEPS, make, write_specs
from torusrun.orchestrator.base.json_files import read_object, write_json
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.job.load.recent_steps import RecentSteps
from torusrun.orchestrator.job.recorded import recorded
from torusrun.orchestrator.predict.answers.score import by_site
from torusrun.orchestrator.predict.model.own_interval import FEWEST, errors, own_interval
from torusrun.orchestrator.predict.score import RunScore, ScoredPart, mean_step_s, of_run, parts
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Scored, from_json
from torusrun.orchestrator.run.folder.kept_forecast import KeptForecast
from torusrun.orchestrator.run.folder.node_load import NodeLoad, RankSteps
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder

COMPLETED = End(State.COMPLETED, "all 4 ranks ended well")
STEP_S, EVALUATION_S, SAVE_S = 0.5, 3.0, 0.25
FORECAST = KeptForecast(
    total_s=STEPS * 0.4 + 5.0, validation_s=5.0, steps=STEPS, images_per_s=1.0, grid=(2, 2),
    save_s=0.2, compute_s=0.3, exposed_s=0.1,
)  # fmt: skip


def row(step: int, t: float, event: str = "step", **more: Any) -> dict[str, Any]:
    return {"attempt": 1, "event": event, "step": step, "t": t, **more}


def trained(upto: int = STEPS, every: int = 5) -> list[dict[str, Any]]:
    """A row after `every` steps; after half of them a save and an evaluation, and at the end another evaluation."""
    rows, at_s = [row(0, 90.0, "start", world=4)], 100.0
    for step in range(1, upto + 1):
        at_s += STEP_S
        if step == STEPS // 2:
            rows.append(row(step, at_s, "checkpoint", seconds=SAVE_S))
        if step % every == 0:
            rows.append(row(step, at_s))
        if step in (STEPS // 2 + 1, STEPS):
            at_s += EVALUATION_S
            rows.append(row(step, at_s, "eval"))
    return rows


def ranks(*computed_s: float, step_s: float = STEP_S, steps: int = 30, gpu: bool = False) -> list[RankSteps]:
    """The newest report of each rank, which computes for so long in a step and reads for a tenth of it."""
    found = []
    for rank, each_s in enumerate(computed_s):
        recent = RecentSteps()
        for step in range(3, steps + 4, 3):
            waited = None if gpu else 1 - each_s / step_s
            newest = recent.add(RankSteps(rank, 1.0, step, step_s, step_s, waited, read=0.1))
        found.append(newest)
    return found


def test_a_step_and_the_evaluations_are_those_between_rows_that_follow_each_other() -> None:
    found = parts(FORECAST, trained(), (), is_complete=True)
    assert found["step"] == ScoredPart(pytest.approx(STEP_S), pytest.approx(0.4))
    assert found["evaluations"] == ScoredPart(pytest.approx(2 * EVALUATION_S), 5.0), (
        "without the step after the last row"
    )
    assert found["training"] == ScoredPart(pytest.approx(STEPS * STEP_S + 2 * EVALUATION_S), FORECAST.total_s)
    assert found["save"] == ScoredPart(SAVE_S, 0.2)
    assert {"compute", "waiting", "exposed", "stragglers", "input"}.isdisjoint(found), (
        "a part that was not measured is absent"
    )
    assert found["step"].ratio == pytest.approx(STEP_S / 0.4)


def test_a_run_that_did_not_complete_has_its_steps_alone() -> None:
    found = parts(FORECAST, trained(30), (), is_complete=False)
    assert [*found] == ["step", "save"]
    assert not parts(replace(FORECAST, compute_s=None), trained(18), (), is_complete=False), (
        "the steps to come may have another batch"
    )
    assert mean_step_s(trained(10)) is None, "fewer than ten steps"


def test_steps_of_several_attempts_are_not_mixed() -> None:
    again = [{**row, "attempt": 2, "t": row["t"] + 5000.0} for row in trained()]
    assert mean_step_s([*trained(20), *again]) == pytest.approx(STEP_S)
    assert mean_step_s([{**row, "t": 1000.0 - row["t"]} for row in trained()]) is None, "a clock that runs backwards"
    assert mean_step_s([row(1, 1.0), row(9, None), {"event": "x"}, row(30, 2.0)]) is None  # type: ignore[arg-type]


def test_ranks_share_a_step_between_computing_communication_and_the_slowest() -> None:
    found = parts(FORECAST, trained(), ranks(0.3, 0.3, 0.3, 0.42), is_complete=True)
    assert found["compute"] == ScoredPart(pytest.approx(0.33), 0.3)
    assert found["exposed"] == ScoredPart(pytest.approx(0.08), 0.1)
    assert found["stragglers"] == ScoredPart(pytest.approx(0.09)), "which is not predicted"
    assert found["waiting"] == ScoredPart(pytest.approx(0.17), 0.1)
    assert sum(found[name].actual_s for name in ("compute", "waiting")) == pytest.approx(STEP_S)
    predicted = parts(replace(FORECAST, stragglers_s=0.05), trained(), ranks(0.3, 0.42), is_complete=True)
    assert predicted["waiting"].forecast_s == predicted["exposed"].forecast_s == pytest.approx(0.15)
    fewer = parts(replace(FORECAST, stragglers_s=-0.05), trained(), ranks(0.3, 0.42), is_complete=True)
    assert (fewer["waiting"].forecast_s, fewer["compute"].forecast_s) == (0.1, pytest.approx(0.25)), (
        "a rate of more ranks contains their wait"
    )
    assert found["input"] == ScoredPart(pytest.approx(0.05)), "which is part of compute, and is not predicted"
    on_gpus = parts(FORECAST, trained(), ranks(0.3, 0.42, gpu=True), is_complete=True)
    assert on_gpus["input"] == found["input"] and "compute" not in on_gpus and "waiting" not in on_gpus
    unknown = replace(ranks(0.3)[0], rank=4, all_waited_s=None)
    for incomplete in ([*ranks(0.3, 0.3, 0.3), unknown], ranks(0.3, 0.3, steps=6)):
        assert "compute" not in parts(FORECAST, trained(), incomplete, is_complete=True)


@pytest.fixture
def run(home: Path) -> RunFolder:
    """A run whose training ended, and whose end nobody has recorded."""
    run = make(write_specs(home), COMPLETED)
    write_json(run.provenance, {**(read_object(run.provenance) or {}), "forecast": asdict(FORECAST)})
    write_rows(run, trained())
    write_ranks(run, ranks(0.3, 0.3, 0.3, 0.42))
    run.ledger.write_text("".join(run.ledger.read_text().splitlines(keepends=True)[:-1]))
    run.attempt(1).end.unlink()
    return run


def write_rows(run: RunFolder, rows: Sequence[dict[str, Any]]) -> None:
    run.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_ranks(run: RunFolder, found: Sequence[RankSteps]) -> None:
    NodeLoad(1.0, 5.0, 4, ranks=tuple(found)).write(run.attempt(1).node_load(0))


def scored(run: RunFolder) -> list[Scored]:
    return [event for event in ledger.events(run.ledger) if isinstance(event, Scored)]


def test_the_job_records_the_parts_once_after_the_end(run: RunFolder) -> None:
    recorded(run, run.attempt(1), lambda: COMPLETED)
    recorded(run, run.attempt(1), lambda: pytest.fail("it was begun again"))
    *_, end, last = [json.loads(line) for line in run.ledger.read_text().splitlines()]
    assert (end["event"], last["event"]) == ("ended", "scored") and len(scored(run)) == 1
    assert last["parts"]["step"] == {"forecast_s": 0.4, "actual_s": 0.5, "error": 0.25}
    assert last["parts"]["stragglers"] == {"actual_s": 0.09}
    assert isinstance(from_json(last), Scored)
    found = of_run(run)
    assert found and found.site == "site" and found.parts["step"] == ScoredPart(0.5, 0.4)


def test_without_the_record_of_its_job_the_folder_has_the_same(run: RunFolder) -> None:
    assert of_run(run) is None, "it is not over"
    COMPLETED.write(run.attempt(1).end)
    found = of_run(run)
    assert found and found.parts["step"].actual_s == pytest.approx(STEP_S) and not scored(run)


@pytest.mark.parametrize("other", ["no forecast", "fewer ranks", "no metrics"])
def test_a_run_that_is_not_comparable_has_no_score(run: RunFolder, other: str) -> None:
    if other == "no forecast":
        write_json(run.provenance, {})
    write_rows(run, {"fewer ranks": [row(0, 90.0, "start", world=3), *trained()[1:]]}.get(other, []))
    write_ranks(run, [])
    recorded(run, run.attempt(1), lambda: COMPLETED)
    assert not scored(run) and of_run(run) is None


def test_nineteen_runs_are_needed_for_an_interval_of_ninety_percent(chance: random.Random) -> None:
    assert own_interval([1.0 + n / 100 for n in range(FEWEST - 1)]) is None
    assert own_interval([1.0 + n / 100 for n in range(FEWEST)]) == (1.0, 1.18), "all of them"
    assert own_interval([1.0 + n / 100 for n in range(39)]) == (1.01, 1.37), "without one at each end"
    for runs in (FEWEST, 39, 99):
        inside = 0
        for _ in range(2000):
            *before, new = [chance.lognormvariate(0.05, 0.2) for _ in range(runs + 1)]
            low, high = own_interval(before) or (0.0, 0.0)
            inside += low <= new <= high
        assert 0.87 <= inside / 2000 <= 0.93, f"{runs} runs: it must hold for 90 % of the next runs"


def test_a_part_is_within_the_interval_of_its_forecast_or_not() -> None:
    bounds = {"step": (0.35, 0.45), "training": (20.0, 30.0), "compute": (0.1, 0.2)}
    found = parts(replace(FORECAST, intervals=bounds), trained(), (), is_complete=True)
    assert (found["step"].is_inside, found["training"].is_inside, found["save"].is_inside) == (False, True, None)
    assert ScoredPart.of(found["step"].as_json()) == found["step"] and "compute" not in found
    scores = [RunScore(str(n), "here", None, found) for n in range(3)]
    rows = {row["part"]: row for row in by_site(scores).record["rows"]}
    assert [(rows[part]["inside"], rows[part]["with_interval"]) for part in ("step", "training", "save")] == [
        (0, 3), (3, 3), (0, 0),
    ]  # fmt: skip
    assert "3 of 3" in by_site(scores).lines[1]


def test_errors() -> None:
    found = errors([0.9, 1.0, 1.02, 1.3])
    assert (found.runs, found.median, found.p95, found.worst) == (4, pytest.approx(0.01), *[pytest.approx(0.3)] * 2)
    assert errors([1.0 + n / 100 for n in range(100)]).p95 == pytest.approx(0.94)


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["score", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_verb_shows_the_parts_of_a_run_and_the_errors_of_a_site(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score"]) == 0 and "torusrun calibrate" in capsys.readouterr().out, "no run is over"
    recorded(run, run.attempt(1), lambda: COMPLETED)
    assert main(["score", "last"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert f"{run.run_id} site step 400.00 ms 500.00 ms +25.0" in lines
    assert f"{run.run_id} site stragglers - 90.00 ms -" in lines
    assert main(["score"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert (
        "site step 1 +25.0 25.0 25.0 -" in lines
        and "site: its own interval needs 19 runs with a step; it has 1" in lines
    )
    assert not [line for line in lines if line.startswith("site stragglers")], "it was not predicted"
    (found,) = [row for row in answer(capsys)["rows"] if row["part"] == "exposed"]
    assert found["median_error"] == pytest.approx(-0.2) and found["runs"] == 1
    assert answer(capsys, "--since", "1h")["rows"] and not answer(capsys, "--since", "2999-01-01")["rows"]
    assert answer(capsys, "--site", "site")["rows"]
    assert main(["score", "--site", "nowhere"]) == 2 and "there is no site" in capsys.readouterr().err


def test_a_site_with_enough_runs_has_its_own_interval(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    for n in range(FEWEST):
        made = make(run.folder.parent.parent / "run.yaml", COMPLETED)
        ledger.append(made.ledger, Scored(1, {"step": {"forecast_s": 1.0, "actual_s": 1.0 + n / 100}}))
    (interval,) = answer(capsys)["intervals"]
    assert interval == {"site": "site", "part": "step", "runs": 19, "fewest": 19, "low": 1.0, "high": 1.18}
    assert main(["score"]) == 0
    line = "site: the steps of the next run take 1.000 to 1.180 times the forecast, with 90 % probability (19 runs)"
    assert line in capsys.readouterr().out
