"""The ten recipes by name, on a real scheduler: the trace of each run shows its techniques."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.lab_places import Slurm
from tests.unit.test_recipes_tables import TABLES
from torusrun.training.recipe.files import load, names

EPOCHS, BATCH, RANKS, IMAGES = 10, 360, 2, 1437  # a quarter of the digits in a step
SPEC = f"""name: {{name}}
site: site.yaml
nodes: 2
ranks_per_node: 1
grid: 2x1
time: 10m
train:
  recipe: {{name}}
  data: digits
  device: cpu
  epochs: {EPOCHS}
  batch: {BATCH}
  trace: true
"""
# The facts of a recipe in the first line of its trace: the optimizer, and the statistics of batch norm.
OPTIMIZER = {"facebook-1h": "sgd", "fastai-18min": "sgd", "surfsara-28min": "sgd", "pfn-15min": "rmsprop-warmup"}
LAST_STATISTICS = {"sony-224s", "sony-122s", "pfn-15min"}
REDUCED_BY = {
    **dict.fromkeys(("sony-224s", "sony-122s", "fujitsu-70s", "google-77s"), "torus"),
    "tencent-6min": "hierarchical",  # the hybrid's algorithm for small vectors
}
SMALLER_WIRE = {"sony-224s", "sony-122s", "fujitsu-70s", "fastai-18min", "pfn-15min", "tencent-6min", "nvidia-80s"}


@pytest.fixture(scope="module")
def runs(slurm_lab: Any) -> dict[str, Path]:
    """The runs of all ten recipes, which share the lab's nodes."""
    place, submitted = Slurm(slurm_lab), {}
    for name in names():
        place.put(f"{name}.yaml", SPEC.format(name=name))
        said = place.succeeds("submit", f"{name}.yaml")
        submitted[name] = said.stdout.split()[0]
    for name, run in submitted.items():
        said = place.torusrun("watch", run)
        assert said.returncode == 0, f"{name}: {said.stdout}{said.stderr}"
    return {name: Path(place.view(run)["folder"]) for name, run in submitted.items()}


@pytest.mark.lab
@pytest.mark.parametrize("name", names())
def test_a_recipe_runs_by_name_and_its_trace_shows_its_techniques_on_the_cluster(
    runs: dict[str, Path], name: str
) -> None:
    recipe = load(name)
    head, *rest = [json.loads(line) for line in (runs[name] / "attempts/1/trace.jsonl").read_text().splitlines()]
    steps = [line for line in rest if "step" in line]
    assert head["optimizer"]["name"] == OPTIMIZER.get(name, "lars")
    assert head["norm"]["statistics"] == ("last" if name in LAST_STATISTICS else "moving")
    assert head["norm"]["ranks"] == (RANKS if name == "google-77s" else 1)
    _check_buckets(name, [bucket for line in [head, *rest] for bucket in line.get("buckets", ())])
    table, epoch_samples, _ = TABLES[name]
    first = table(0, 0.0)
    for line in steps:
        begins = line["samples"] / IMAGES * recipe.train.epochs / EPOCHS
        wanted = table(0, begins)
        wanted = table(begins * epoch_samples / wanted.batch, begins)  # type: ignore[arg-type]
        shrunk = BATCH / first.batch
        rate = wanted.rate * (shrunk**0.5 if recipe.scale.rate == "square-root" else shrunk)
        assert line["lr"] == pytest.approx(rate, rel=1e-3, abs=1e-6), f"{name}, step {line['step']}"
        assert line["batch"] == pytest.approx(wanted.batch * shrunk, rel=0.01), f"{name}, step {line['step']}"
        assert line["size"] == min(8, round(wanted.size * 8 / 224)), f"{name}, step {line['step']}"
        assert wanted.decay < 0 or line["weight_decay"] == wanted.decay, f"{name}, step {line['step']}"
    assert sum(line["batch"] for line in steps) >= EPOCHS * IMAGES
    if name == "fujitsu-70s":
        assert {line["augment"] for line in steps} == {True, False}


def _check_buckets(name: str, buckets: list[dict[str, Any]]) -> None:
    """Check that the recipe's all-reduce has reduced them; if they travel in 16 bits, the loss travels apart."""
    reduced = [bucket for bucket in buckets if bucket["gradients"]]
    assert {bucket["all_reduce"] for bucket in reduced} == {REDUCED_BY.get(name, "flat")}, buckets
    assert any(not bucket["gradients"] for bucket in buckets) == (name in SMALLER_WIRE), buckets
    if name == "fujitsu-70s":  # 3, 21, 57 and 80 of ResNet-50's 161 tensors; in proportion for these 29
        assert [bucket["gradients"] for bucket in reduced] == [1, 3, 11, 14], buckets


@pytest.mark.lab
def test_an_ensemble_is_reported_beside_its_members_on_the_cluster(runs: dict[str, Path]) -> None:
    lines = (runs["surfsara-28min"] / "metrics.jsonl").read_text().splitlines()
    last = [row for row in map(json.loads, lines) if row["event"] == "eval"][-1]
    assert len(last["members"]) == 3 and last["best_member"] == max(last["members"]) and "ensemble" in last
