"""What a measurement says of the input, and the file that says that all is done."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any, cast

import pytest
from phased import CPU, Small, Watched, configured, digits, learner
from phased import group as group
from training_runs import TINY, config, finish, launched

from tests.images_tree import write_tree
from torusrun.training import measure
from torusrun.training.config import Ranks
from torusrun.training.data import image_files
from torusrun.training.data.view import View
from torusrun.training.parts import Parts
from torusrun.training.recipe.facts import data_facts, model_facts, program
from torusrun.training.recipe.protocols import DataSet
from torusrun.training.recipe.train import Train
from torusrun.training.schedule import Course


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


ONE = Ranks(0, 1, 0)


def rows(folder: Path, data: DataSet) -> list[dict[str, Any]]:
    config = configured(folder, batch=8, epochs=1, phases=())
    parts = Parts(data, Small(), cast(Any, None), Course(config.train, data.train_samples))
    return list(measure.times(config, ONE, CPU, parts))


def test_images_are_read_read_again_and_decoded(group: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    images = image_files.build_imagefolder(seed=1, root=str(write_tree(tmp_path / "tree")))
    images.look(View(size=24))
    found = rows(tmp_path, images)
    assert [row["operation"] for row in found] == ["read", "read_again", "decode"]
    assert all(row["batch"] == 8 and row["time_s"] > 0 for row in found)
    assert found[-1]["cpu_s"] > 0 and not images.problems()


def test_a_data_set_that_does_not_read_ahead_has_no_input_of_its_own(group: None, tmp_path: Path) -> None:
    assert rows(tmp_path, digits()) == []


def test_other_samples_in_every_batch_and_only_what_a_data_set_can(group: None, tmp_path: Path) -> None:
    watched = Watched(digits())
    (row,) = rows(tmp_path, watched)
    assert row["operation"] == "decode" and not watched.hints
    assert len(watched.asked) == 8 * measure.BATCHES and set(watched.asked.values()) == {1}


def test_a_step_for_timing_reads_its_batch_once(group: None, tmp_path: Path) -> None:
    learning, watched = learner(tmp_path)
    for _ in range(3):
        learning.step_alone()
    assert len(watched.steps) == 1 and not watched.hints
