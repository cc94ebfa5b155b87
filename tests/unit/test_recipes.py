"""The files of the published recipes: every value has a mark and a source; `torusrun recipes` shows them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.verbs import prints
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.plan import plan
from torusrun.orchestrator.run.plan.plan_files import read_first
from torusrun.training.recipe.files import CERTAINTIES, FOLDER, Mark, load
from torusrun.training.recipe.fits import complaints
from torusrun.training.recipe.published import names
from torusrun.training.recipe.train import DataKeys, ModelKeys, OptimizerKeys, Train

ROOT = Path(__file__).resolve().parents[2]
RUN = "name: record\nsite: local\nranks_per_node: 4\ntrain:\n  recipe: {recipe}\n  data: digits\n{more}"


def run_file(folder: Path, recipe: str, more: str = "") -> Path:
    path = folder / "run.yaml"
    path.write_text(RUN.format(recipe=recipe, more=more))
    return path


def test_there_is_a_file_for_every_name() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*")) == sorted(names())


@pytest.mark.parametrize("name", names())
def test_every_value_has_a_mark_and_a_source(name: str) -> None:
    recipe = load(name)
    for key, _ in recipe.leaves():
        mark = recipe.mark(key)
        assert mark is not None, f"{key} has no mark"
        assert mark.certainty in CERTAINTIES and mark.source, key
        assert (mark.certainty == "memory") == mark.source.startswith("from memory"), key
    assert {"who", "time", "accuracy", "batch", "gpus", "kind"} <= recipe.facts.keys()
    for fact in recipe.facts.values():
        assert fact.value and fact.mark.certainty in CERTAINTIES


@pytest.mark.parametrize("name", names())
def test_no_mark_is_for_a_value_that_is_not_there(name: str) -> None:
    recipe = load(name)
    used = {id(recipe.mark(key)) for key, _ in recipe.leaves()}
    assert not {key for key, mark in recipe.marks.items() if id(mark) not in used}


@pytest.mark.parametrize("name", names())
def test_the_rate_of_the_optimizer_is_the_highest_of_the_phases(name: str) -> None:
    train = load(name).train
    assert train.optimizer.lr == max(rate for phase in train.phases for rate in phase.lr or ())
    assert train.phases[0].batch in (None, train.batch)


def test_a_mark_of_one_phase_wins_and_an_erratum_is_kept_beside_what_was_printed() -> None:
    recipe = load("surfsara-28min")
    assert [recipe.mark(key).certainty for key in ("phases[2].lr[0]", "phases[1].lr[0]", "phases[3].lr[0]")] == [  # type: ignore[union-attr]
        "verified", "derived", "derived",
    ]  # fmt: skip
    recipe = load("nvidia-80s")
    assert (recipe.facts["batch"].value, recipe.train.batch) == ("55,904", 59904)
    assert "59,904" in recipe.erratum and isinstance(recipe.facts["batch"].mark, Mark)


def test_the_list_names_all_and_is_80_columns_wide(capsys: pytest.CaptureFixture[str]) -> None:
    lines = prints(capsys, "recipes").splitlines()
    assert all(any(line.startswith(name) for line in lines) for name in names())
    assert max(map(len, lines)) <= 80
    assert any("55,904* v" in line for line in lines)
    listed = json.loads(prints(capsys, "recipes", "--json"))["recipes"]
    assert [recipe["published"]["time"]["certainty"] for recipe in listed] == ["verified"] * 10


@pytest.mark.parametrize("name", names())
def test_one_recipe_is_shown_within_80_columns(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = prints(capsys, "recipes", "show", name)
    assert max(map(len, shown.splitlines())) <= 80
    assert load(name).title.split()[0] in shown and "learning rate" in shown
    found = json.loads(prints(capsys, "recipes", "show", name, "--json"))
    assert found["train"]["recipe"] == name and found["marks"]["batch"]["source"]


def test_a_plan_holds_the_recipes_values_and_what_changed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run_file(home, "fujitsu-70s", "  optimizer: {momentum: 0.9}\n")
    planned = plan(path, settings=["train.epochs=10"])
    train = planned.run.train
    assert (train.optimizer.momentum, train.optimizer.lars.trust, train.epochs) == (0.9, 0.0025, 10)
    assert [round(phase.until, 3) for phase in train.phases] == [4, 9.444, 9.778, 10]
    shown = prints(capsys, "plan", str(path))
    assert "fujitsu-70s" in shown and "batch: 168, published 86,016 (samples per rank as published" in shown
    assert planned.as_json()["recipe"]["changes"][0]["key"] == "data"


def test_a_plan_names_the_phases_that_have_no_step(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = home / "run.yaml"
    phases = "[{until: 0.5, lr: 1}, {until: 0.9, lr: 1, collapse: true}, {until: 1, lr: 1}]"
    spec.write_text(f"name: x\nsite: local\nranks_per_node: 1\ntrain: {{epochs: 1, phases: {phases}}}\n")
    for batch, said in ((64, ""), (1300, "no step     train.phases[1]: the previous batch continues past the end\n")):
        shown = prints(capsys, "plan", str(spec), "--set", f"train.batch={batch}")
        assert said in shown and ("no step" in shown) == bool(said) and "1 epoch," in shown


def test_a_kept_plan_is_the_plan_and_tells_what_changed(home: Path) -> None:
    planned = plan(run_file(home, "google-77s"))
    planned.folder.mkdir(parents=True)
    run = RunFolder(planned.folder)
    run.plan.write_text(json.dumps(planned.as_json()))
    kept = read_first(run, 1)
    assert kept.run.train == planned.run.train and kept.recipe == planned.recipe


def test_a_run_without_a_recipe_reads_no_yaml_of_recipes() -> None:
    """Nor do the ranks of a training: they are told every value."""
    program = "import sys, torusrun.training.recipe.fits, torusrun.training.config; print('yaml' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert said.stdout == "False\n", said.stderr


@pytest.mark.parametrize(("site", "ranks_per_node", "most"), [("abci-v", 4, 512), ("abci-h", 8, 128)])
@pytest.mark.parametrize("name", names())
def test_every_recipe_can_be_planned_on_abci(name: str, site: str, ranks_per_node: int, most: int, home: Path) -> None:
    nodes = min(most, -(-load(name).scale.ranks // ranks_per_node))
    example = ROOT / "examples" / "recipes" / "imagenet.yaml"
    planned = plan(example, site=site, settings=[f"train.recipe={name}", f"nodes={nodes}", "account=x"])
    train = planned.run.train
    assert (train.model.name, train.data.name) == ("resnet50", "imagefolder")
    assert train.precision == load(name).train.precision
    if planned.ranks == load(name).scale.ranks:
        assert planned.recipe_changes == ()


# Options of built-ins are checked before a job waits in the queue.


FILES = {"root": "/data"}
RESNET = ModelKeys("resnet18")


@pytest.mark.parametrize(
    ("train", "said"),
    [
        (Train(data=DataKeys("imagefolder", {**FILES, "tset_batch": 4})), "tset_batch: .* did you mean 'test_batch'"),
        (Train(data=DataKeys("digits", {"seed": 1})), "options.seed: digits has no such option; it takes none"),
        (Train(model=RESNET, data=DataKeys("tar-shards", {**FILES, "max_corrupt": 7})), "max_corrupt must be a share"),
        (Train(model=RESNET, data=DataKeys("imagefolder", {"root": "rel"})), "'rel' must be the absolute path"),
        (
            Train(model=RESNET, data=DataKeys("imagefolder", {**FILES, "samples": "60"})),
            "samples must be a whole number",
        ),
        (Train(model=ModelKeys("resnet18", {"widthz": 3})), "widthz: resnet18 has no such option; it takes version"),
        (Train(model=ModelKeys("resnet50", {"version": "v9"})), "version: must be one of v1, v1.5"),
        (
            Train(data=DataKeys("imagefolder", FILES), model=ModelKeys("resnet-digits")),
            r"not \(3, 224, 224\); resnet18",
        ),
        (Train(optimizer=OptimizerKeys("sgd", options={"foo": 1})), "options.foo: sgd has no such option"),
    ],
)
def test_options_that_a_built_in_does_not_take_are_reported(train: Train, said: str) -> None:
    ((_, told),) = complaints(train)
    assert re.search(said, told), told


@pytest.mark.parametrize(
    "train",
    [
        Train(),
        Train(data=DataKeys("synthetic", {"classes": 10, "samples": 64, "channels": 1})),
        Train(data=DataKeys("imagefolder", {"root": "$DATA/images", "samples": 60}), model=ModelKeys("resnet18")),
        Train(data=DataKeys("mine:data", {"any": 1}), model=ModelKeys("mine:model", {"any": 1})),
        Train(optimizer=OptimizerKeys("rmsprop-warmup", options={"centre": 5.0})),
    ],
)
def test_what_it_takes_is_not(train: Train) -> None:
    assert list(complaints(train)) == []
