"""LARS against its formulas in plain float64 numbers, and where its two forms part."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from optimized import DECAY, MOMENTUM, gradients, model, take
from torch import nn

from torusrun.training.optim.lars import LARS
from torusrun.training.recipe.train import LarsKeys

FORMS = st.builds(
    LarsKeys, trust=st.floats(1e-3, 1.0), eps=st.sampled_from([0.0, 1e-6]),
    lr_in_momentum=st.booleans(), ratio_in_momentum=st.booleans(),
    ratio_decay=st.none() | st.floats(0.0, 0.1),
)  # fmt: skip
RATES = st.lists(st.floats(0.0, 2.0), min_size=1, max_size=6)


class OneTensor:
    """The formulas of the module, number by number."""

    def __init__(self, weights: list[float], lars: LarsKeys, scaled: bool) -> None:
        self.weights, self.velocity, self.lars, self.scaled = weights, [0.0] * len(weights), lars, scaled

    def step(self, gradient: list[float], rate: float) -> None:
        decay, ratio = (DECAY, self._ratio(gradient)) if self.scaled else (0.0, 1.0)
        before, after = (ratio, 1.0) if self.lars.ratio_in_momentum else (1.0, ratio)
        for i, u in enumerate([before * (g + decay * w) for g, w in zip(gradient, self.weights, strict=True)]):
            added, taken = (rate * u, after) if self.lars.lr_in_momentum else (u, rate * after)
            self.velocity[i] = MOMENTUM * self.velocity[i] + added
            self.weights[i] -= taken * self.velocity[i]

    def _ratio(self, gradient: list[float]) -> float:
        weight_norm, gradient_norm = math.hypot(*self.weights), math.hypot(*gradient)
        if not weight_norm or not gradient_norm:
            return 1.0
        decay = DECAY if self.lars.ratio_decay is None else self.lars.ratio_decay
        return self.lars.trust * weight_norm / (gradient_norm + decay * weight_norm + self.lars.eps)


def trained(lars: LarsKeys, rates: list[float], correction: bool = False) -> nn.Linear:
    net = model()
    optimizer = LARS(net, MOMENTUM, DECAY, lars, correction)
    for step, rate in enumerate(rates):
        take(net, optimizer, step, rate)
    return net


@given(FORMS, RATES)
@settings(max_examples=60)
def test_every_form_follows_its_formula(lars: LarsKeys, rates: list[float]) -> None:
    net = trained(lars, rates)
    for index, (got, start) in enumerate(zip(net.parameters(), model().parameters(), strict=True)):
        oracle = OneTensor(start.flatten().tolist(), lars, scaled=start.ndim > 1)
        for step, rate in enumerate(rates):
            oracle.step(gradients(step)[index].flatten().tolist(), rate)
        assert got.flatten().tolist() == pytest.approx(oracle.weights, rel=1e-9, abs=1e-12)


def test_tensorflow_1_14_has_rate_and_ratio_outside_the_momentum() -> None:
    """tf.contrib.opt.LARSOptimizer of its wheel, number by number: accum = m accum + g, var -= lr ratio accum."""
    net, rates, eeta, decay, epsilon = model(), [0.2, 0.9, 0.4], 0.001, 1e-4, 1e-5
    keys = LarsKeys(trust=eeta, eps=epsilon, ratio_decay=decay, lr_in_momentum=False, ratio_in_momentum=False)
    optimizer = LARS(net, 0.9, 0.0, keys)
    weights, accum = model().weight.flatten().tolist(), [0.0] * 12
    for step, rate in enumerate(rates):
        take(net, optimizer, step, rate)
        gradient = gradients(step)[0].flatten().tolist()
        norm = math.hypot(*weights)
        ratio = eeta * norm / (math.hypot(*gradient) + decay * norm + epsilon)
        accum = [0.9 * a + g for a, g in zip(accum, gradient, strict=True)]
        weights = [w - rate * ratio * a for w, a in zip(weights, accum, strict=True)]
    assert net.weight.flatten().tolist() == pytest.approx(weights, rel=1e-12)


def test_a_tensor_without_a_norm_is_moved_by_plain_momentum() -> None:
    net = nn.Linear(2, 2)
    nn.init.zeros_(net.weight)
    net.weight.grad, net.bias.grad = torch.ones(2, 2), torch.ones(2)
    LARS(net, MOMENTUM, DECAY, LarsKeys()).step(0.5)
    assert net.weight.tolist() == [[-0.5, -0.5]] * 2, "a norm of 0 gives a ratio of 1, not of 0 or nan"


def test_a_step_does_not_change_the_gradient() -> None:
    net = model()
    take(net, LARS(net, MOMENTUM, DECAY, LarsKeys()), 0, 0.5)
    for parameter, gradient in zip(net.parameters(), gradients(0), strict=True):
        assert parameter.grad is not None and torch.equal(parameter.grad, gradient)


def test_fujitsus_two_stages_are_the_form_inside_with_a_decay_of_its_own_in_the_ratio() -> None:
    """Their kernel number by number: m takes both terms, the decay follows the curve of the rate."""
    base, decay, eta = 1.5, 5e-3, 0.0025
    net, curve = model(), [0.2, 0.6, 1.0, 0.7, 0.3]
    keys = LarsKeys(trust=eta, eps=1e-9, ratio_decay=decay * base)
    optimizer = LARS(net, 0.96, decay, keys)
    weights, velocity = model().weight.flatten().tolist(), [0.0] * 12
    for step, c in enumerate(curve):
        take(net, optimizer, step, base * c)
        gradient = gradients(step)[0].flatten().tolist()
        norm, scaled = math.hypot(*weights), decay * base
        s = eta * norm / (math.hypot(*gradient) + scaled * norm + 1e-9)
        for i, g in enumerate(gradient):
            velocity[i] = 0.96 * velocity[i] - s * scaled * c * weights[i] - s * base * c * g
            weights[i] += velocity[i]
    assert net.weight.flatten().tolist() == pytest.approx(weights, rel=1e-12)


@given(st.lists(st.floats(1e-3, 2.0), min_size=1, max_size=6))
def test_with_momentum_correction_the_rate_may_be_in_either_place(rates: list[float]) -> None:
    inside, outside = (LarsKeys(trust=0.1, lr_in_momentum=place) for place in (True, False))
    assert torch.allclose(trained(inside, rates, True).weight, trained(outside, rates).weight, rtol=1e-9)
