"""Clipping and torch.compile: equal to plain torch."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import phased
import pytest
import torch
from phased import CPU, SAMPLES, Small, digits, learner
from phased import group as group
from states import differing
from torch import nn
from torch.nn import functional

from torusrun.training.data import order
from torusrun.training.parts import compile_
from torusrun.training.recipe.reading import ConfigError

BATCH, STEPS = 64, 12
CLIPPED = 0.3


def test_clipping_is_that_of_plain_torch(group: None, tmp_path: Path) -> None:
    one, _ = learner(tmp_path, phases=(), epochs=1, clip_norm=CLIPPED)
    model = Small()
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
    assert max(norms) > CLIPPED, f"nothing was clipped: {norms}"
    state = one.state()
    for name, tensor in model.state_dict().items():
        assert torch.allclose(state["model"][name], tensor, atol=1e-6), name


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
        compile_(model, CPU, "fp32")
        for batch in batches:
            model(torch.ones(batch, 1, 8, 8))
        return found[-1]

    compiled_by(keep, monkeypatch)
    assert program(8, 16) == program(16)


def test_without_a_compiler_the_ranks_say_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"train\.compile: .*needs a C\+\+ compiler on a CPU.*load a module"):
        compile_(Small(), CPU, "fp32")


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
    keys = {"phases": (), "epochs": 1}
    plain, compiled = learner(tmp_path, **keys)[0], learner(tmp_path, compile=True, **keys)[0]
    compile_(compiled.model, CPU, "fp32")
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
    assert found.loss == pytest.approx(expected.loss, abs=1e-5)
    for name, tensor in plain.state()["model"].items():
        assert torch.allclose(undisturbed["model"][name], tensor, atol=1e-5), name
