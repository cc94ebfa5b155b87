"""SGD against torch's, momentum correction against the rate outside the momentum, and its state."""

from __future__ import annotations

import copy
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from optimized import DECAY, MOMENTUM, gradients, model, take

from torusrun.training.optim.sgd import SGD

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


def test_without_it_the_place_of_the_rate_matters_when_the_rate_changes() -> None:
    rates = [0.1, 0.5, 1.0, 0.1]
    assert not torch.allclose(trained(rates, lr_in_momentum=True)[0], trained(rates)[0], rtol=1e-3)


def test_a_rate_of_0_moves_nothing_and_the_correction_continues_after_it() -> None:
    keys = {"lr_in_momentum": True, "momentum_correction": True}
    assert all(map(torch.equal, trained([0.0], **keys), model().parameters()))
    assert all(torch.isfinite(weight).all() for weight in trained([0.5, 0.0, 0.5, 0.25], **keys))


def test_parameters_that_had_no_gradient_change_by_the_rate_of_their_own_last_step() -> None:
    net, rates = model(), [0.1, 0.4, 0.2]
    optimizer = SGD(net, MOMENTUM, 0.0, lr_in_momentum=True, momentum_correction=True)
    u = torch.zeros(3, dtype=torch.float64)
    expected = model().bias.detach()
    for step, rate in enumerate(rates):
        net.weight.grad = torch.ones(3, 4, dtype=torch.float64)
        net.bias.grad = None if step == 1 else torch.ones(3, dtype=torch.float64)
        optimizer.step(rate)
        if step != 1:
            u = MOMENTUM * u + 1
            expected = expected - rate * u
    assert torch.allclose(net.bias, expected, rtol=1e-12)


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
