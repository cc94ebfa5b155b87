"""`torusrun export`: the metrics of runs as CSV and event files, read back by other programs."""

from __future__ import annotations

import csv
import json
import os
import stat
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.unit.run_folders import DONE, STEPS, make, write_specs
from tests.unit.test_report_series import row
from tests.unit.verbs import Capsys, Patch, refuses
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.show.exported import FORMATS, Format, MetricTable, as_csv, as_events, table


def needs(package: str) -> None:
    """Skip without a package that `make test` installs; in CI that is a failure."""
    if find_spec(package) is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"install it: pip install {package}")


def resumed() -> MetricTable:
    """Two attempts; the second one computes step 15 again. The program reports a number of its own."""
    first = [row(1, 5, loss=1, lr=0.5), row(1, 10, loss=0.75), row(1, 10, "eval", accuracy=0.5), row(1, 15, loss=9.0)]
    second = [row(2, 10, "start"), row(2, 15, loss=0.25, perplexity=3.5), row(2, 15, "eval", accuracy=0.75)]
    return table("made", [*first, *second])


def test_a_table_has_each_step_once_and_our_columns_first() -> None:
    found = resumed()
    assert [(each["event"], each["step"], each["attempt"]) for each in found.rows] == [
        ("step", 5, 1), ("step", 10, 1), ("eval", 10, 1), ("step", 15, 2), ("eval", 15, 2)
    ]  # fmt: skip
    assert found.columns == [
        "run", "event", "t", "attempt", "step", "samples", "lr", "loss", "accuracy", "perplexity"
    ]  # fmt: skip


def test_what_is_no_number_is_left_out() -> None:
    (found,) = table("made", [row(1, 5, loss=None, text="x", flag=True, listed=[1], large=10**400)]).rows
    assert set(found) == {"run", "event", "t", "attempt", "step", "samples"}


def test_csv_has_all_digits_and_empty_cells() -> None:
    lines = list(csv.DictReader(as_csv(resumed()).decode().splitlines()))
    assert lines[0] == {
        "run": "made", "event": "step", "t": "105.0", "attempt": "1", "step": "5", "samples": "320", "lr": "0.5",
        "loss": "1", "accuracy": "", "perplexity": "",
    }  # fmt: skip
    assert [line["accuracy"] for line in lines] == ["", "", "0.5", "", "0.75"]


def test_event_files_are_read_back_and_equal_the_second_time(tmp_path: Path) -> None:
    needs("tensorboard")
    content = as_events(resumed())
    assert content == as_events(resumed())
    (file := tmp_path / FORMATS["tensorboard"].file).write_bytes(content)
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    read: dict[int, dict[str, float]] = {}
    for event in LegacyEventFileLoader(str(file)).Load():
        read.setdefault(event.step, {}).update({value.tag: value.simple_value for value in event.summary.value})
    assert [*read] == [0, 5, 10, 15]
    assert read[5]["train/loss"] == 1.0 and read[5]["train/learning_rate"] == 0.5
    assert read[10]["train/loss"] == 0.75 and read[10]["test/accuracy"] == 0.5
    assert read[15]["progress/samples"] == 960 and read[15]["perplexity"] == 3.5


def test_the_verb_replaces_its_file_and_leaves_others(run: RunFolder, home: Path, capsys: Capsys) -> None:
    file = home / "curves" / run.run_id / "metrics.csv"
    assert main(["export", "last", str(home / "curves")]) == 0 and capsys.readouterr().out == f"{file}\n"
    first, mine = file.read_bytes(), file.with_name("mine.txt")
    mine.write_text("mine")
    assert len(first.splitlines()) == STEPS + 2, "titles, steps, and the evaluation at the end"
    assert main(["export", "made*", str(home / "curves"), "--as", "csv"]) == 0
    assert file.read_bytes() == first and mine.read_text() == "mine" and len(list(file.parent.iterdir())) == 2
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_folder_of_a_run_that_is_a_link_is_not_followed_and_one_for_all_is_refused(
    run: RunFolder, tmp_path: Path, capsys: Capsys
) -> None:
    (mine := tmp_path / "mine").mkdir()
    (mine / "metrics.csv").write_text("mine")
    (into := tmp_path / "into").mkdir()
    (into / run.run_id).symlink_to(mine)
    assert "this is a symbolic link, and is not followed" in refuses(capsys, "export", "last", str(into))
    (into / run.run_id).unlink()
    into.chmod(0o777)
    assert main(["export", "last", str(into)]) == 3
    assert "other users can write to this folder" in capsys.readouterr().err
    assert (mine / "metrics.csv").read_text() == "mine" and not os.listdir(into)


def test_a_run_without_steps_is_refused_and_the_others_are_written(run: RunFolder, home: Path, capsys: Capsys) -> None:
    other = make(write_specs(home), DONE)
    other.metrics.write_text(json.dumps({"event": "start", "attempt": 1, "step": 0, "t": 1.0}) + "\n{cut sho")
    assert main(["export", run.run_id, other.run_id, str(home / "curves")]) == 2
    said = capsys.readouterr()
    assert f"{other.run_id}: it has recorded no steps" in said.err and said.out.count("metrics.csv") == 1
    assert not (home / "curves" / other.run_id).exists()


def test_a_missing_package_is_reported_once_with_its_command(
    run: RunFolder, home: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    monkeypatch.setitem(FORMATS, "tensorboard", Format("events", as_events, "no_such_package"))
    said = refuses(capsys, "export", run.run_id, run.run_id, str(home / "curves"), "--as", "tensorboard")
    assert said.count("\n") == 1 and "pip install no_such_package" in said
    assert not (home / "curves").exists()
