"""The optimizers against torch's and the papers' formulas."""

from __future__ import annotations

import copy
import importlib
import inspect
import io
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from optimized import DECAY, MOMENTUM, gradients, model, take, take_at
from torch import nn

from torusrun.training.optim.rmsprop_warmup import RMSpropWarmup, sgd_share
from torusrun.training.optim.sgd import SGD
from torusrun.training.recipe.fits import OF_OPTIMIZERS
from torusrun.training.recipe.names import OPTIMIZERS, build
from torusrun.training.recipe.protocols import Optimizer
from torusrun.training.recipe.reading import ConfigError
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


RATES = st.lists(st.floats(1e-3, 2.0), min_size=1, max_size=6)


def trained(rates: list[float], **keys: bool) -> list[torch.Tensor]:
    net = model()
    optimizer = SGD(net, MOMENTUM, DECAY, **keys)
    for step, rate in enumerate(rates):
        take(net, optimizer, step, rate)
    return [parameter.detach() for parameter in net.parameters()]


@given(RATES, st.booleans(), st.booleans())
@settings(max_examples=20, deadline=None)  # torch.optim imports the compiler when it first steps
def test_it_takes_the_steps_of_torch(rates: list[float], nesterov: bool, decay_vectors: bool) -> None:
    net = model()
    groups = [
        {"params": [net.weight], "weight_decay": DECAY},
        {"params": [net.bias], "weight_decay": DECAY if decay_vectors else 0.0},
    ]
    theirs = torch.optim.SGD(groups, momentum=MOMENTUM, nesterov=nesterov, lr=0.1)
    for step, rate in enumerate(rates):
        for parameter, gradient in zip(net.parameters(), gradients(step), strict=True):
            parameter.grad = gradient
        for group in theirs.param_groups:
            group["lr"] = rate
        theirs.step()
    for mine, right in zip(
        trained(rates, nesterov=nesterov, decay_vectors=decay_vectors), net.parameters(), strict=True
    ):
        assert torch.allclose(mine, right, rtol=1e-9, atol=1e-12)


@given(RATES, st.booleans())
def test_the_rate_inside_the_momentum_follows_its_formula(rates: list[float], nesterov: bool) -> None:
    weights, velocity = model().weight.detach(), torch.zeros(3, 4, dtype=torch.float64)
    for step, rate in enumerate(rates):
        u = gradients(step)[0] + DECAY * weights
        velocity = MOMENTUM * velocity + rate * u
        weights = weights - (MOMENTUM * velocity + rate * u if nesterov else velocity)
    assert torch.allclose(trained(rates, lr_in_momentum=True, nesterov=nesterov)[0], weights, rtol=1e-9, atol=1e-12)


@given(RATES, st.booleans())
def test_with_momentum_correction_the_rate_may_be_in_either_place(rates: list[float], nesterov: bool) -> None:
    inside = trained(rates, lr_in_momentum=True, momentum_correction=True, nesterov=nesterov)
    for one, other in zip(inside, trained(rates, nesterov=nesterov), strict=True):
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-12)


def test_a_rate_of_0_moves_nothing_and_the_correction_continues_after_it() -> None:
    keys = {"lr_in_momentum": True, "momentum_correction": True}
    assert all(map(torch.equal, trained([0.0], **keys), model().parameters()))
    assert all(torch.isfinite(weight).all() for weight in trained([0.5, 0.0, 0.5, 0.25], **keys))


def test_an_optimizer_that_goes_back_to_an_earlier_state_takes_the_same_steps_again() -> None:
    net = model()
    optimizer = SGD(net, MOMENTUM, DECAY, lr_in_momentum=True, momentum_correction=True)
    kept: list[dict[str, Any]] = []
    for step in (0, 1):
        kept.append(copy.deepcopy({"model": net.state_dict(), "optimizer": optimizer.state_dict()}))
        take(net, optimizer, step, (0.1, 0.4)[step])
    for state, again in zip(kept[::-1], ((1,), (0, 1)), strict=True):
        wanted = net.weight.detach().clone()
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        for step in again:
            take(net, optimizer, step, (0.1, 0.4)[step])
        assert torch.equal(net.weight, wanted)


TRAIN = Train(optimizer=OptimizerKeys("rmsprop-warmup", momentum=MOMENTUM, weight_decay=DECAY))
WARMING_STEPS = st.lists(
    st.tuples(st.floats(0, 15), st.floats(1e-3, 2.0), st.sampled_from([0.0, 0.01, 0.1])), max_size=6
)

# exp(-4)/2, exp(-2)/2, exp(-0.4)/2, ... to four places, by hand
SHARES = {0: 0.0092, 2.5: 0.0249, 5: 0.0677, 7.5: 0.1839, 9: 0.3352, 10: 0.5, 11: 0.7, 12: 0.9, 12.5: 1, 13: 1, 90: 1}


@pytest.mark.parametrize(("epochs", "share"), SHARES.items())
def test_the_share_of_sgd_by_epoch(epochs: float, share: float) -> None:
    assert sgd_share(epochs, 10.0, 5.0) == pytest.approx(share, abs=5e-5)


@given(st.floats(0, 100), st.floats(0.1, 50), st.floats(0, 200), st.floats(0, 1))
def test_the_share_grows_without_a_jump_to_1(centre: float, period: float, epochs: float, ahead: float) -> None:
    before, after = sgd_share(epochs, centre, period), sgd_share(epochs + ahead, centre, period)
    assert 0 <= before <= after <= 1
    assert after - before <= ahead / period + 1e-9, "the slope is 1/period at most"
    assert sgd_share(centre + period / 2, centre, period) == pytest.approx(1)


def one_number(w: float, gradients: list[float], steps: list[tuple[float, float, float]], decayed: bool) -> float:
    """The formulas for one weight, with the share of SGD written out again."""
    m = d = 0.0
    for g, (e, rate, decay) in zip(gradients, steps, strict=True):
        u = g + (decay * w if decayed else 0.0)
        a = math.exp(2 * (e - 10) / 5) / 2 if e < 10 else 0.5 + (e - 10) / 5 if e < 12.5 else 1.0
        b = (1 - a) * 3e-4 / rate
        m = 0.99 * m + 0.01 * u * u
        d = MOMENTUM * d - (a + b / (math.sqrt(m) + 1e-8)) * u
        w += rate * d
    return w


@given(WARMING_STEPS, st.booleans())
def test_it_follows_its_formulas(steps: list[tuple[float, float, float]], decay_vectors: bool) -> None:
    net, start = model(), model()
    keys = OptimizerKeys("rmsprop-warmup", momentum=MOMENTUM, decay_vectors=decay_vectors)
    optimizer = RMSpropWarmup(net, Train(optimizer=keys))
    drawn: list[tuple[list[float], ...]] = []
    for step, now in enumerate(steps):
        take_at(net, optimizer, step, now)
        drawn.append(tuple(p.grad.flatten().tolist() for p in net.parameters() if p.grad is not None))
    for number, (got, first) in enumerate(zip(net.parameters(), start.parameters(), strict=True)):
        decayed = first.ndim > 1 or decay_vectors
        for i, w in enumerate(first.flatten().tolist()):
            right = one_number(w, [each[number][i] for each in drawn], steps, decayed)
            assert got.flatten()[i].item() == pytest.approx(right, rel=1e-9, abs=1e-12)


def test_a_rate_of_0_moves_nothing() -> None:
    net = model()
    take_at(net, RMSpropWarmup(net, TRAIN), 0, (0.0, 0.0, 0.01))
    assert all(map(torch.equal, net.parameters(), model().parameters()))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mu2": 1.5}, "train.optimizer.options.mu2 must be at most"),
        ({"period": 0.0}, "train.optimizer.options.period must be above 0"),
        ({"rms_rate": -1.0}, "train.optimizer.options.rms_rate must be at least 0"),
        ({"centre": "ten"}, "train.optimizer.options.centre must be a number"),
    ],
)
def test_options_out_of_their_limits_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        RMSpropWarmup(model(), TRAIN, **options)
