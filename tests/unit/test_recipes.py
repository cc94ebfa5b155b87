"""The files of the published recipes: every value has a mark and a source; `torusrun recipes` shows them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.keys.problems import SpecError
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.plan import plan
from torusrun.orchestrator.run.plan.plan_files import read_first
from torusrun.training.recipe.files import CERTAINTIES, FOLDER, Mark, load
from torusrun.training.recipe.published import names

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


def test_a_mark_of_one_phase_wins_over_that_of_all() -> None:
    recipe = load("surfsara-28min")
    assert [recipe.mark(key).certainty for key in ("phases[2].lr[0]", "phases[1].lr[0]", "phases[3].lr[0]")] == [  # type: ignore[union-attr]
        "verified", "derived", "derived",
    ]  # fmt: skip


def test_an_erratum_is_kept_beside_what_was_printed() -> None:
    recipe = load("nvidia-80s")
    assert (recipe.facts["batch"].value, recipe.train.batch) == ("55,904", 59904)
    assert "59,904" in recipe.erratum and isinstance(recipe.facts["batch"].mark, Mark)


def test_the_list_names_all_and_is_80_columns_wide(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(any(line.startswith(name) for line in lines) for name in names())
    assert max(map(len, lines)) <= 80
    assert any("55,904* v" in line for line in lines)
    assert main(["recipes", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["recipes"]
    assert [recipe["published"]["time"]["certainty"] for recipe in listed] == ["verified"] * 10


@pytest.mark.parametrize("name", names())
def test_one_recipe_is_shown_within_80_columns(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "show", name]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert load(name).title.split()[0] in shown and "learning rate" in shown
    assert main(["recipes", "show", name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["train"]["recipe"] == name and found["marks"]["batch"]["source"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "sony-22s"], "did you mean 'sony-224s'?"),
        (["show"], "which recipe? Write its name"),
        (["sony-224s"], "'sony-224s' is not 'show': write `torusrun recipes`, or `torusrun recipes show NAME`"),
    ],
)
def test_what_cannot_be_shown_gets_one_clear_error(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recipes", *words]) == 2
    assert said in capsys.readouterr().err


def test_an_unknown_recipe_is_named_where_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"run.yaml:5:11: .*must be one of.*did you mean 'nvidia-80s'\?"):
        plan(run_file(tmp_path, "nvidia-80"))


def test_a_plan_holds_the_recipes_values_and_what_changed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run_file(home, "fujitsu-70s", "  optimizer: {momentum: 0.9}\n")
    planned = plan(path, settings=["train.epochs=10"])
    train = planned.run.train
    assert (train.optimizer.momentum, train.optimizer.lars.trust, train.epochs) == (0.9, 0.0025, 10)
    assert [round(phase.until, 3) for phase in train.phases] == [4, 9.444, 9.778, 10]
    assert main(["plan", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "fujitsu-70s" in shown and "batch: 168, published 86,016 (samples per rank as published" in shown
    assert planned.as_json()["recipe"]["changes"][0]["key"] == "data"


def test_a_plan_names_the_phases_that_have_no_step(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = home / "run.yaml"
    phases = "[{until: 0.5, lr: 1}, {until: 0.9, lr: 1, collapse: true}, {until: 1, lr: 1}]"
    spec.write_text(f"name: x\nsite: local\nranks_per_node: 1\ntrain: {{epochs: 1, phases: {phases}}}\n")
    for batch, said in ((64, ""), (1300, "no step     train.phases[1]: the previous batch continues past the end\n")):
        assert main(["plan", str(spec), "--set", f"train.batch={batch}"]) == 0
        shown = capsys.readouterr().out
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
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert said.stdout == "False\n", said.stderr


@pytest.mark.parametrize(("site", "ranks_per_node", "most"), [("abci-v", 4, 512), ("abci-h", 8, 128)])
@pytest.mark.parametrize("name", names())
def test_every_recipe_can_be_planned_on_abci(name: str, site: str, ranks_per_node: int, most: int, home: Path) -> None:
    nodes = min(most, -(-load(name).scale.ranks // ranks_per_node))
    example = ROOT / "examples" / "recipes" / "imagenet.yaml"
    planned = plan(example, site=site, settings=[f"train.recipe={name}", f"nodes={nodes}", "account=x"])
    train = planned.run.train
    assert (train.model.name, train.data.name, train.precision) == (
        "resnet50",
        "imagefolder",
        load(name).train.precision,
    )
    if planned.ranks == load(name).scale.ranks:
        assert planned.recipe_changes == ()


def test_values_have_their_marks(capsys: pytest.CaptureFixture[str]) -> None:
    main(["recipes", "show", "nvidia-80s"])
    shown = capsys.readouterr().out
    assert "0 to 40.7 v" in shown and "batch 59,904 v" in shown and "momentum 0.9 v" in shown
