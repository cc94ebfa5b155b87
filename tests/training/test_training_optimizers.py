"""What the optimizers have in common: the decay of a step is told before it, and a state goes on with the same bits."""

from __future__ import annotations

import importlib
import inspect
import io
from dataclasses import replace

import pytest
import torch
from optimized import DECAY, MOMENTUM, model, take_at
from torch import nn

from torusrun.training.recipe.build import build
from torusrun.training.recipe.fits import OF_OPTIMIZERS
from torusrun.training.recipe.names import OPTIMIZERS
from torusrun.training.recipe.protocols import Optimizer
from torusrun.training.recipe.train import OptimizerKeys, Train

KEYS = {
    "sgd": OptimizerKeys("sgd", lr_in_momentum=True, nesterov=True),
    "corrected-sgd": OptimizerKeys("sgd", lr_in_momentum=True, nesterov=True, momentum_correction=True),
    "lars": OptimizerKeys("lars"),
    "corrected-lars": OptimizerKeys("lars", momentum_correction=True),
    "rmsprop-warmup": OptimizerKeys("rmsprop-warmup"),
}
# (epochs, rate, decay): the share of SGD of RMSprop's warm-up grows on the way
STEPS = [(9.0, 0.1, DECAY), (9.9, 0.4, DECAY), (11.0, 0.3, 0.02), (13.0, 0.2, 0.02)]


def moved(net: nn.Module, optimizer: Optimizer, steps: range, decays: float = 1.0) -> None:
    for step in steps:
        epochs, rate, decay = STEPS[step]
        take_at(net, optimizer, step, (epochs, rate, decay * decays))


def made(name: str, net: nn.Module, decay: float = DECAY) -> Optimizer:
    keys = replace(KEYS[name], momentum=MOMENTUM, weight_decay=decay)
    optimizer: Optimizer = build("train.optimizer", keys, OPTIMIZERS, net, Train(optimizer=keys))
    return optimizer


@pytest.mark.parametrize("name", KEYS)
def test_a_resumed_optimizer_continues_with_the_same_bits(name: str) -> None:
    straight, net = model(), model()
    moved(straight, made(name, straight), range(4))
    first, resumed = made(name, net), made(name, net)
    moved(net, first, range(2))
    kept = io.BytesIO()
    torch.save(first.state_dict(), kept)
    resumed.load_state_dict(torch.load(io.BytesIO(kept.getvalue()), weights_only=True))
    moved(net, resumed, range(2, 4))
    assert all(map(torch.equal, net.parameters(), straight.parameters()))


@pytest.mark.parametrize("name", KEYS)
def test_the_decay_of_a_step_is_the_one_set_before_it(name: str) -> None:
    plain, told, other = model(), model(), model()
    moved(plain, made(name, plain), range(2))
    moved(told, made(name, told, decay=0.5), range(2))
    moved(other, made(name, other), range(2), decays=2.0)
    assert torch.equal(plain.weight, told.weight) and not torch.equal(plain.weight, other.weight)


def test_the_options_of_optimizers_are_those_of_their_builders() -> None:
    found = {}
    for name, target in OPTIMIZERS.known.items():
        module, _, function = target.partition(":")
        builder = getattr(importlib.import_module(module), function)
        found[name] = tuple(inspect.signature(builder).parameters)[2:]
    assert found == OF_OPTIMIZERS
