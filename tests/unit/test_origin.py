"""`torusrun show`, and the forecast beside what a run took."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.unit.run_folders import STEPS, make, write_specs
from tests.unit.verbs import prints
from torusrun.orchestrator.base.json_files import read_object, write_json, write_text
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.shown_plan import KeptForecast, read_forecast
from torusrun.orchestrator.run.plan.forecast import forecast_at_submit, forecast_of
from torusrun.orchestrator.run.plan.plan import plan
from torusrun.training.reporting.metrics import Metrics

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DONE = End(State.COMPLETED, "all 4 ranks ended well, planted-4711 among them")
FORECAST = KeptForecast(120.0, 20.0, STEPS, 800.0, (2, 2), ("links: 12.5 GB/s",))


def known(run: RunFolder, **more: object) -> None:
    """Add to the provenance of a run."""
    write_json(run.provenance, {**(read_object(run.provenance) or {}), **more})


@pytest.fixture
def run(home: Path) -> RunFolder:
    spec = write_specs(home)
    spec.write_text(f"{spec.read_text()}env: {{TOKEN: planted-4711}}\n")
    made = make(spec, DONE)
    known(made, git={"commit": "a" * 40, "dirty": True, "untracked": ["x"]})
    write_text(made.code_diff, "+planted-4711\n", secret=True)
    return made


def show(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """The rows of the table; the names of settings begin with '- '."""
    rows = (line.split("  ", 1) for line in prints(capsys, "show", run.run_id).splitlines())
    return {name or f"- {rest.split()[0]}": rest.strip() if name else rest.split(None, 1)[1] for name, rest in rows}


def test_one_screen_has_all_that_made_the_run(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    Metrics(run.metrics, 1).write("start", step=0, torch="2.13.0", device="cuda", cuda="12.8", nccl="2.27.3")
    rows = show(run, capsys)
    changed = "with changes, which are in code.diff of the run folder, 1 untracked file"
    assert rows["code"] == f"commit {'a' * 40}, {changed}"
    assert rows["changes"] == str(run.code_diff) and rows["hosts"] == "here" and rows["grid"] == "2x2"
    assert rows["training"] == "torch 2.13.0, device cuda, CUDA 12.8, NCCL 2.27.3"
    assert rows["image"] == "made" and len(rows["image SHA-256"]) == 64
    assert rows["- grid"] == "2x2" and rows["- time"] == "600s" and rows["- env.TOKEN"] == "[value of TOKEN]"
    assert not {"forecast", "reproduces", "copied code"} & rows.keys(), "what is unknown has no line"


def test_no_value_of_env_is_shown(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    known(run, host="planted-4711")
    for options in ([], ["--json"]):
        assert main(["show", run.run_id, *options]) == 0
        said = capsys.readouterr()
        assert "planted-4711" not in said.out + said.err and "[value of TOKEN]" in said.out


def test_json_has_the_records_and_what_was_predicted(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    known(run, forecast=asdict(FORECAST))
    found = json.loads(prints(capsys, "show", run.run_id, "--json"))
    assert found["provenance"]["git"]["commit"] == "a" * 40 and found["diff"] == str(run.code_diff)
    assert found["forecast"]["total_s"] == 120.0 and found["took_s"] >= 0 and found["reproduces"] is None
    assert found["settings"]["time"] == "600s" and found["image"]["name"] == "made"


def test_a_run_that_repeats_another_is_compared_with_it(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    known(run, reproduces=run.run_id)
    assert show(run, capsys)["reproduces"].startswith(f"{run.run_id}: bit-identical: equal loss and accuracy at 40")
    known(run, reproduces="gone-1")
    assert show(run, capsys)["reproduces"] == "gone-1, which is gone"


def test_the_forecast_is_shown_beside_what_the_run_took(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    """In `show`, `status --long` and the page of `report`."""
    known(run, forecast=asdict(FORECAST))
    begun = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    rows = [{**row, "t": 1000.0 + 3.0 * row["step"]} for row in begun if row["event"] != "done"]
    run.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ledger = [{**json.loads(line), "t": 990.0} for line in run.ledger.read_text().splitlines()]
    ledger[-1]["t"] = 1200.0
    run.ledger.write_text("".join(json.dumps(event) + "\n" for event in ledger))
    line = f"predicted at submit: 2.0 min for {STEPS} steps, 20.0 s of it for evaluations; took 117.0 s (-2.5%)"
    line += "; a step of 2500.00 ms took 3000.00 ms (+20.0%)"
    assert show(run, capsys)["forecast"] == line
    assert main(["status", run.run_id, "--long"]) == 0 and line in capsys.readouterr().out
    assert main(["report", run.run_id, "-o", str(run.folder / "page.html")]) == 0
    assert line in (run.folder / "page.html").read_text()
    assert main(["status", run.run_id, "--long", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.partition("\n")[2])["runs"][0]["account"]["forecast"]["steps"] == STEPS


@pytest.mark.parametrize("damage", [{}, {"total_s": "x"}, {**asdict(FORECAST), "total_s": -1.0}, [1], None])
def test_a_damaged_forecast_is_none(damage: object, run: RunFolder) -> None:
    known(run, forecast=damage)
    assert read_forecast(run) is None


def test_the_kept_forecast_is_what_predict_says(home: Path) -> None:
    trained = plan(EXAMPLES / "recipes/imagenet.yaml")
    found = forecast_at_submit(trained)
    assert found and found.total_s == pytest.approx(forecast_of(trained).total_s)
    assert found.assumptions and found.steps > 0
    assert forecast_at_submit(plan(EXAMPLES / "digits.yaml")) is None, "its rate on this machine is not known"
    assert forecast_at_submit(plan(EXAMPLES / "racks/run.yaml", site="abci-v", settings=["account=x"])) is None
