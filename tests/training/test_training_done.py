"""The file that says that all is done. That a training writes it is held where trainings end: see resume."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from training_runs import TINY, config, finish, launched

from torusrun.training.recipe.facts import data_facts, model_facts
from torusrun.training.recipe.train import Train
from torusrun.training.recipe.variant import program


def test_it_is_for_its_owner_only_and_alone(tmp_path: Path) -> None:
    from torusrun.training.files.trusted import put

    (tmp_path / ".tmp-done.json").symlink_to("elsewhere")
    put(tmp_path / "done.json", b"{}")
    assert stat.S_IMODE((tmp_path / "done.json").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["done.json"], "nothing half-written may stay"


def test_a_measurement_is_done_after_its_one_step(tmp_path: Path) -> None:
    document = config(tmp_path)
    launch = finish(document, "torusrun.training.measure")
    assert json.loads(Path(document["done"]).read_text()) == {
        "schema": 1, "attempt": 1, "step": 1, "total_steps": 1, "samples": 0,
    }  # fmt: skip
    assert launch.events()[-1]["event"] == "done"
    computed = [row for row in launch.events("measured") if "model" in row]
    assert len(computed) == 2 and all(row["ranks"] == 1 and 0 < row["spread"] < 10 for row in computed), computed
    train = Train()
    assert {row["program"] for row in computed} == {program(train)}
    (counted,) = (row for row in launch.events("measured") if "counted" in row)
    data = data_facts(train)
    model = data and model_facts(train, data)
    assert data and model and counted["halves"] == [data.train_samples, data.test_samples]
    assert counted["tensors"] == [tensor.parameters for tensor in model.tensors], (
        "what a login node knows of a built-in"
    )


@pytest.mark.parametrize("module", ["torusrun.training", "torusrun.training.measure"])
def test_all_ranks_say_that_it_could_not_be_written(tmp_path: Path, module: str) -> None:
    document = {**config(tmp_path, (2, 1), **TINY), "done": str(tmp_path / "missing" / "done.json")}
    with launched(document, module=module) as launch:
        codes = launch.codes()
    assert codes == [74, 74], f"{codes}: {launch.stderr_text}"
    told = [line for line in launch.stderr_text.splitlines() if line.startswith("training:")]
    assert len(told) == 1 and "No such file or directory" in told[0] and "resume" in told[0], launch.stderr_text
    assert not launch.events("done"), "metrics must not claim what the file does not"
