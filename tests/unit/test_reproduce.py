"""A run is submitted again: with its own code, image, settings and grid, or with one clear error."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.run_folders import DONE, make, write_specs
from tests.unit.slurm_programs import SlurmPrograms
from tests.unit.verbs import Capsys, Patch
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.json_files import read_object, write_json
from torusrun.orchestrator.cli.api import open_run, submit
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.attempts.reproduce import plan_again
from torusrun.orchestrator.run.folder import allocation, ledger
from torusrun.orchestrator.run.folder.events import Changes, Started, Submitted, Submitting
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.plan_files import read_first

SECRET = "hidden-4711"
RUN = """nodes: 4
time: 5m
command: [python, train.py, --seed, "7"]
code: project
checkpoints: {folder: ckpt}
env: {A: plain, B: {from_shell: true}}"""


@pytest.fixture
def run(home: Path, monkeypatch: Patch) -> RunFolder:
    """A run whose job chose a grid; its program wrote files beside its code, and its user edited the code since."""
    monkeypatch.setenv("B", SECRET)
    SlurmPrograms(home, monkeypatch, RUN)
    project = home / "project"
    (project / "empty").mkdir(parents=True)
    (project / "train.py").write_text("print('as submitted')\n")
    made = submit(home / "run.yaml").folder
    ledger.append(made.ledger, Started(1, "1", hosts=("a", "b", "c", "d"), grid=(2, 2)))
    (made.code / "ckpt").mkdir()
    (made.code / "ckpt/state").touch()
    (made.code / "out.txt").touch()
    (made.code / "empty/out.txt").touch()
    (project / "train.py").write_text("print('edited since')\n")
    (home / "run.yaml").write_text("name: y\n")
    (home / "site.yaml").write_text("scheduler: gone\n")
    return made


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_the_same_run_is_submitted_again(run: RunFolder, home: Path, capsys: Capsys) -> None:
    assert main(["reproduce", run.run_id]) == 0
    again = open_run(capsys.readouterr().out.strip()).folder
    before, after = read_first(run, 1), read_first(again, 1)
    assert after.run == replace(before.run, grid=(2, 2)), "the grid that the job chose"
    assert after.site == before.site and again.spec.read_bytes() == run.spec.read_bytes()
    assert files(again.code) == ["empty", "train.py"], "what the program wrote is not code"
    assert (again.code / "train.py").read_text() == "print('as submitted')\n"
    assert read_object(again.code_record) == read_object(run.code_record)
    provenance = read_object(again.provenance) or {}
    assert provenance["reproduces"] == run.run_id
    assert SECRET in again.secrets.read_text() and (home / "count").read_text().count("x") == 2
    (run.code / "train.py").write_text("print('by its program')\n")
    assert "as submitted" in (again.code / "train.py").read_text(), "the original may be at work"


def test_a_reproduction_can_be_reproduced(run: RunFolder) -> None:
    again = open_run(run.run_id).reproduce().reproduce().folder
    assert files(again.code) == ["empty", "train.py"]


def test_the_first_attempt_counts_if_later_ones_had_another_grid(run: RunFolder, capsys: Capsys) -> None:
    ledger.append(run.ledger, Submitting(2, "x", changes=Changes(nodes=2, grid=(2, 1))))
    ledger.append(run.ledger, Submitted(2, "2", "slurm"))
    ledger.append(run.ledger, Started(2, "2", hosts=("a", "b"), grid=(2, 1)))
    record = read_object(run.provenance) or {}
    write_json(run.provenance, {**record, "packages": {**record["packages"], "numpy": "0.1"}})
    again = open_run(run.run_id).reproduce()
    assert again.plan.run.nodes == 4 and again.plan.grid.dims == (2, 2)
    said = capsys.readouterr().err
    assert "continued on other nodes or another grid; this run takes those of its first attempt" in said
    assert "note: results may differ: numpy is " in said and ", and was 0.1" in said


def edited(run: RunFolder) -> None:
    (run.code / "train.py").chmod(0o600)
    (run.code / "train.py").write_text("print('edited in the copy')\n")


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (
            lambda run: shutil.rmtree(run.code),
            "code is not the code that .* was submitted with: .* is gone; submit its",
        ),
        (lambda run: (run.code / "train.py").unlink(), "train.py is gone; submit its run file as a new run"),
        (edited, "its SHA-256 is .*, and was .*; submit its run file as a new run"),
        (lambda run: run.code_record.unlink(), "code.json is gone; submit its run file as a new run"),
        (lambda run: allocation.make(run, 60.0), "holds an allocation, and trains nothing"),
        (lambda run: os.environ.pop("B"), "this shell has no variable B"),
    ],
)
def test_what_is_gone_gets_one_clear_error_and_nothing_is_submitted(
    harm: Callable[[RunFolder], object], says: str, run: RunFolder, home: Path
) -> None:
    harm(run)
    with pytest.raises(UserError, match=says):
        open_run(run.run_id).reproduce()
    assert list((home / "runs").iterdir()) == [run.folder] and (home / "count").read_text() == "x\n"


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda sif, run: sif.unlink(), "made.sif: the image of this run cannot be read: No such file.*; put it back"),
        (
            lambda sif, run: sif.write_bytes(b"other"),
            "made.sif is not the image .* its SHA-256 is .*; put it back",
        ),
        (lambda sif, run: run.image.unlink(), "image.json is gone, which names the image of"),
    ],
)
def test_the_image_must_be_there_and_unchanged(
    harm: Callable[[Path, RunFolder], object], says: str, home: Path
) -> None:
    made, sif = make(write_specs(home), DONE), home / "made.sif"
    kept = json.loads(made.plan.read_text())
    kept["spec"]["image"] = str(sif)
    made.plan.write_text(json.dumps(kept))
    assert plan_again(made).run.image == str(sif)
    harm(sif, made)
    with pytest.raises(UserError, match=says):
        plan_again(made)
