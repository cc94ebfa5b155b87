"""RMSprop warm-up against its formulas in plain numbers, and the share of SGD against a table."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from optimized import DECAY, MOMENTUM, model, take_at

from torusrun.training.optim.rmsprop_warmup import RMSpropWarmup, sgd_share
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import OptimizerKeys, Train

TRAIN = Train(optimizer=OptimizerKeys("rmsprop-warmup", momentum=MOMENTUM, weight_decay=DECAY))
STEPS = st.lists(st.tuples(st.floats(0, 15), st.floats(1e-3, 2.0), st.sampled_from([0.0, 0.01, 0.1])), max_size=6)

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


@given(STEPS, st.booleans())
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
