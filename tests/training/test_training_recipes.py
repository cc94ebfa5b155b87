"""The shipped example learns the digits, recipes train, and they send what a prediction says."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from phased import SAMPLES, learner
from phased import group as group
from states import differing
from training_runs import config, finish

from torusrun.orchestrator.forecast.workload import workload
from torusrun.training.collectives import all_reduce
from torusrun.training.learner import Learner
from torusrun.training.models.residual import build_digits
from torusrun.training.recipe import published
from torusrun.training.recipe.train import Train
from torusrun.training.sync.gradients import Gradients

EPOCHS, BATCH = 3, 40
GIVEN = frozenset({"recipe", "device", "epochs", "batch"})


def resolved(name: str) -> dict[str, Any]:
    """The keys of a recipe, for one rank and a few epochs of the digits."""
    train = Train(recipe=name, device="cpu", epochs=EPOCHS, batch=BATCH)
    return vars(published.resolve(train, GIVEN, 1, gpus=False).train)


def again(learning: Learner, folder: Path, keys: dict[str, Any]) -> Learner:
    """Another learner, which has gone on from a checkpoint of this one."""
    kept = io.BytesIO()
    torch.save(learning.state(), kept)
    kept.seek(0)
    resumed, _ = learner(folder, **keys)
    resumed.restore(torch.load(kept, weights_only=True))
    return resumed


@pytest.mark.parametrize("name", published.names())
def test_a_recipe_resumes_in_all_its_phases_with_the_same_bits(group: None, tmp_path: Path, name: str) -> None:
    keys = resolved(name)
    undisturbed, _ = learner(tmp_path, **keys)
    phases = undisturbed.course.phases
    stops = {phase.first for phase in phases} | {(phase.first + phase.end) // 2 for phase in phases}
    stops |= {phase.end - 1 for phase in phases}
    resumed, _ = learner(tmp_path, **keys)
    seen: set[int] = set()
    while not undisturbed.finished:
        undisturbed.step(stop=False)
        before = resumed.progress.samples
        resumed.step(stop=False)
        seen.add(undisturbed.course.phase_at(before).number)
        if any(before < stop <= resumed.progress.samples for stop in stops):
            resumed = again(resumed, tmp_path, keys)
    undisturbed.check_alike()
    resumed.check_alike()
    assert undisturbed.progress.samples >= EPOCHS * SAMPLES
    assert differing(undisturbed.state(), resumed.state()) == []
    assert seen == set(range(len(phases))), "every phase must have a step"


def test_digits_are_learned(tmp_path: Path) -> None:
    done = finish(config(tmp_path, (1, 1))).events("done")[0]
    assert done["accuracy"] >= 0.98, f"the example reaches {done['accuracy']:.4f} of the digits, 0.98 is promised"


def test_the_bucket_has_as_many_bytes_as_the_prediction_reckons_with() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        gradients = Gradients(build_digits(classes=10, shape=(1, 8, 8), seed=1), all_reduce.build("torus", (1, 1)))
    finally:
        dist.destroy_process_group()
    assert sum(bucket.vector.nbytes for bucket in gradients.buckets) == workload("resnet-digits").gradient_bytes
