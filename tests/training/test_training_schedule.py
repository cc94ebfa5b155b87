"""The learning rate at the points where it can be said by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.schedule.learning_rate import cosine, learning_rate, polynomial


@pytest.mark.parametrize(("epoch", "rate"), [(0.0, 0.0), (1.0, 0.1), (2.0, 0.2), (11.0, 0.1), (20.0, 0.0), (20.1, 0.0)])
def test_warm_up_then_cosine(epoch: float, rate: float) -> None:
    assert learning_rate(epoch, peak=0.2, epochs=20, warmup_epochs=2) == pytest.approx(rate)


def test_polynomial() -> None:
    rate = learning_rate(5.0, peak=8.0, epochs=10, warmup_epochs=0, decay=polynomial(2))
    assert rate == pytest.approx(2.0), "half of the way at power 2 leaves a quarter"


@given(warmup_epochs=st.floats(0, 30), epoch=st.floats(0, 25))
def test_never_negative_nor_above_the_peak(warmup_epochs: float, epoch: float) -> None:
    assert 0 <= learning_rate(epoch, peak=1.0, epochs=20, warmup_epochs=warmup_epochs, decay=cosine) <= 1
