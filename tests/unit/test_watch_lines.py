"""`watch` without a terminal: a line for each change of each run, a table at the end, and an exit code for all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.run_folders import DONE, make, write_specs
from tests.unit.test_views_table import view
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.show.screen import detail, printed

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
