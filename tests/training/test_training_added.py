"""Clipping, an average of the weights, and mixed images: equal to plain torch and the papers' formulas, and resumed."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import phased
import pytest
import torch
from phased import CPU, SAMPLES, Small, digits, learner
from phased import group as group
from states import differing, saved
from torch import nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from training_runs import TRAIN

from torusrun.training.checkpoint.loading import load
from torusrun.training.checkpoint.store import CheckpointFolder
from torusrun.training.data import mixing, order
from torusrun.training.data.view import View
from torusrun.training.evaluation.evaluate import evaluate
from torusrun.training.models.compiled import compile_
from torusrun.training.parts import build_parts
from torusrun.training.recipe import fits
from torusrun.training.recipe.phases import PhaseKeys
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import DataKeys, LarsKeys, ModelKeys, NormKeys, OptimizerKeys, SyncKeys, Train

BATCH, STEPS = 64, 12
ALL: dict[str, Any] = {"phases": (), "epochs": 1, "clip_norm": 0.5, "ema": 0.9, "mixup": 0.4, "cutmix": 1.0}
CLIPPED = 0.3
SHARDED = OptimizerKeys("lars", lars=LarsKeys(form="sharded"))


def test_clipping_and_the_average_are_those_of_plain_torch(group: None, tmp_path: Path) -> None:
    one, _ = learner(tmp_path, phases=(), epochs=1, clip_norm=CLIPPED, ema=0.8)
    model = Small()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.8), use_buffers=True)
    decayed = [weight for weight in model.parameters() if weight.ndim > 1]
    others = [weight for weight in model.parameters() if weight.ndim < 2]
    groups = [{"params": decayed, "weight_decay": 1e-4}, {"params": others, "weight_decay": 0.0}]
    optimizer, norms = torch.optim.SGD(groups, lr=0.1, momentum=0.9), list[float]()
    for step in range(STEPS):
        one.step(stop=False)
        samples = order.rank_batch(step * BATCH, batch=BATCH, rank=0, world=1, samples=SAMPLES, seed=1)
        inputs, labels = digits().train_batch(samples)
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), labels, label_smoothing=0.1).backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIPPED)))
        for each in optimizer.param_groups:
            each["lr"] = one.last_rate
        optimizer.step()
        average.update_parameters(model)
    assert max(norms) > CLIPPED, f"nothing was clipped: {norms}"
    state = one.state()
    for name, tensor in model.state_dict().items():
        assert torch.allclose(state["model"][name], tensor, atol=1e-6), name
        if tensor.is_floating_point():
            assert torch.allclose(state["average"][name], average.module.state_dict()[name], atol=1e-6), name
    shards = [digits().test_shard(0, 1)]
    assert one.evaluate() == evaluate(average.module, shards, CPU, 10), "evaluations are of the average"
    assert one.evaluate() != evaluate(model, shards, CPU, 10)


@pytest.mark.parametrize("steps", [1, 7])
def test_a_resumed_training_ends_in_the_same_bits(group: None, tmp_path: Path, steps: int) -> None:
    undisturbed, first, resumed = (learner(tmp_path, **ALL)[0] for _ in range(3))
    for _ in range(steps):
        first.step(stop=False)
    checkpoints = CheckpointFolder(tmp_path / "checkpoints", attempt=1)
    name = saved(checkpoints, first.state(), first.progress, first.epochs)
    assert checkpoints.newest is not None
    resumed.restore(load(tmp_path / "checkpoints", name, checkpoints.newest.sha256["state.pt"], CPU))
    for each in (undisturbed, resumed):
        while not each.finished:
            each.step(stop=False)
    assert not differing(resumed.state(), undisturbed.state())
    assert resumed.evaluate() == undisturbed.evaluate()


def test_mixup_is_the_papers_formula(chance: Random) -> None:
    images, labels = torch.rand(6, 3, 5, 7), torch.tensor([0, 1, 2, 3, 0, 0])
    mix = mixing.Mix(chance.random(), None)
    found, targets = mixing.mixed(mix, images, labels, 4)
    for sample in range(6):
        partner = sample + 1 - 2 * (sample % 2)
        assert torch.allclose(found[sample], mix.share * images[sample] + (1 - mix.share) * images[partner], atol=1e-6)
        expected = torch.zeros(4)
        expected[labels[sample]] += mix.share
        expected[labels[partner]] += 1 - mix.share
        assert torch.allclose(targets[sample], expected, atol=1e-6)


def test_cutmix_pastes_a_box_and_counts_its_pixels(chance: Random) -> None:
    images, labels = torch.rand(4, 2, 8, 10), torch.tensor([0, 1, 2, 1])
    for _ in range(50):
        mix = mixing.Mix(chance.random(), (chance.random(), chance.random()))
        found, targets = mixing.mixed(mix, images, labels, 3)
        pasted = found[0, 0] != images[0, 0]
        assert torch.equal(found[0][:, pasted], images[1][:, pasted])
        rows, columns = np.nonzero(pasted.numpy())
        if len(rows):
            area = (np.ptp(rows) + 1) * (np.ptp(columns) + 1)
            assert area == len(rows), "it is a rectangle"
        assert len(rows) <= 80 * (1 - mix.share), "the edges cut it off, and its sides are rounded down"
        assert targets[0].tolist() == pytest.approx([1 - len(rows) / 80, len(rows) / 80, 0])


def test_a_mix_is_a_function_of_seed_and_position_and_follows_beta() -> None:
    shares = [mixing.mix_of(1, samples, 0.4, 0.0).share for samples in range(2000)]
    assert mixing.mix_of(1, 7, 0.4, 0.0).share == shares[7] != mixing.mix_of(2, 7, 0.4, 0.0).share
    assert np.mean(shares) == pytest.approx(0.5, abs=0.03)
    assert np.var(shares) == pytest.approx(1 / (4 * (2 * 0.4 + 1)), abs=0.01), "the variance of Beta(0.4, 0.4)"
    kinds = [mixing.mix_of(1, samples, 0.4, 1.0).middle is None for samples in range(1000)]
    assert 400 < sum(kinds) < 600, "each batch takes one of both"


def test_the_halves_of_a_batch_are_mixed_as_the_whole(chance: Random) -> None:
    """So the number of ranks does not change the samples."""
    images, labels = torch.rand(8, 1, 6, 6), torch.arange(8) % 3
    mix = mixing.mix_of(chance.randrange(100), 640, 0.3, 1.0)
    whole = mixing.mixed(mix, images, labels, 3)
    halves = [mixing.mixed(mix, images[at : at + 4], labels[at : at + 4], 3) for at in (0, 4)]
    for one, parts in zip(whole, zip(*halves, strict=True), strict=True):
        assert torch.equal(one, torch.cat(parts))


def test_images_that_are_not_changed_are_not_mixed(group: None, tmp_path: Path) -> None:
    keys = {"phases": (PhaseKeys(0.5), PhaseKeys(1.0, augment=False)), "epochs": 1}
    one, watched = learner(tmp_path, mixup=0.4, **keys)
    assert one._feed.take(one.progress)[1].ndim == 2
    while one.course.view_at(one.progress).augment:
        one.step(stop=False)
    assert one._feed.take(one.progress)[1].ndim == 1 and watched.views[-1] == View(augment=False)


@pytest.mark.parametrize(
    ("train", "key", "said"),
    [
        (Train(batch=6, mixup=0.2), "train.batch", "6 gives each rank 3 samples, an odd number, and train.mixup mixes"),
        (Train(batch=6, cutmix=1.0), "train.batch", "train.cutmix mixes pairs"),
        (Train(clip_norm=1.0, sync=SyncKeys(every=2)), "train.clip_norm", "mean gradient"),
        (Train(clip_norm=1.0, optimizer=SHARDED), "train.clip_norm", "no rank"),
        (Train(ema=0.9, norm=NormKeys(statistics="last")), "train.ema", "different statistics"),
        (Train(ema=0.9, phases=(PhaseKeys(20.0, collapse=True),)), "train.ema", "branches would be in the average"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(train: Train, key: str, said: str) -> None:
    assert [each for each in fits.misfits(train, 2) if each.key == key and said in each.message]


@pytest.mark.parametrize(
    "train",
    [
        Train(
            epochs=4, batch=64, mixup=0.2, phases=(PhaseKeys(2, batch=64, nodes=1), PhaseKeys(4, batch=128, nodes=32))
        ),
        Train(epochs=4, batch=64, mixup=0.2, phases=(PhaseKeys(2, batch=128), PhaseKeys(4, batch=256))),
    ],
)
def test_only_batches_that_these_ranks_train_must_have_pairs(train: Train) -> None:
    assert not [each for each in fits.misfits(train, 64, (2, 4)) if "pairs" in each.message]


def test_an_average_is_evaluated_with_tied_weights(group: None) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Linear(64, 64))
    model[2].weight = model[1].weight
    average = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    shards = [digits().test_shard(0, 1)]
    assert evaluate(model, shards, CPU, 64, own=average) == evaluate(model, shards, CPU, 64)


def compiled_by(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `backend` take the graphs: the default one needs half a minute, a C++ compiler and the headers of Python."""
    compiled = nn.Module.compile
    monkeypatch.setattr(nn.Module, "compile", lambda self, **keys: compiled(self, backend=backend, **keys))
    monkeypatch.setenv("CXX", "true")


def test_a_compiled_network_is_the_same_program_for_a_batch_whatever_came_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = list[str]()

    def keep(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        found.append(str([getattr(each, "shape", each) for each in inputs]))
        return graph.forward

    def program(*batches: int) -> str:
        torch._dynamo.reset()
        model = Small()
        compile_(model, CPU)
        for batch in batches:
            model(torch.ones(batch, 1, 8, 8))
        return found[-1]

    compiled_by(keep, monkeypatch)
    assert program(8, 16) == program(16)


def test_what_is_no_image_cannot_be_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "points.py").write_text(
        "import types\n"
        "def build(seed):\n"
        "    return types.SimpleNamespace(train_samples=4, test_samples=1, classes=2, shape=(3,), train_batch=0,"
        " test_shard=0)\n"
        "def linear(classes, shape, seed):\n"
        "    import torch\n"
        "    return torch.nn.Linear(3, 2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    keys = replace(TRAIN, data=DataKeys("points:build"), model=ModelKeys("points:linear"), cutmix=1.0)
    with pytest.raises(ConfigError, match=r"train\.cutmix: samples of shape \(3,\) are not images"):
        build_parts(keys, CPU)


def test_without_a_compiler_the_ranks_say_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"train\.compile: .*needs a C\+\+ compiler on a CPU.*load a module"):
        compile_(Small(), CPU)


class Linear(nn.Module):
    """A small network. An nn.Sequential would not be compiled at all."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer = nn.Linear(64, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layer(images.flatten(1))


def test_a_compiled_network_learns_the_same_and_resumes(
    group: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled_by("aot_eager", monkeypatch)
    monkeypatch.setattr(phased, "Small", Linear)
    keys = {"phases": (), "epochs": 1, "ema": 0.9}
    plain, compiled = learner(tmp_path, **keys)[0], learner(tmp_path, compile=True, **keys)[0]
    compile_(compiled.model, CPU)
    names = list(compiled.state()["model"])
    for _ in range(6):
        compiled.step(stop=False)
        if compiled.progress.steps == 3:
            halfway = copy.deepcopy(compiled.state())
    undisturbed = copy.deepcopy(compiled.state())
    compiled.restore(halfway)
    while compiled.progress.steps < 6:
        compiled.step(stop=False)
    assert not differing(compiled.state(), undisturbed)
    while plain.progress.steps < 6:
        plain.step(stop=False)
    assert list(plain.state()["model"]) == names, "its names stay"
    found, expected = compiled.evaluate().model, plain.evaluate().model
    assert found.loss == pytest.approx(expected.loss, abs=1e-5), "the average must be evaluated"
    for name, tensor in plain.state()["model"].items():
        assert torch.allclose(undisturbed["model"][name], tensor, atol=1e-5), name
