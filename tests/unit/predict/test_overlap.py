"""The tensors that buckets hold, and when their gradients are ready."""

import pytest

from torusrun.orchestrator.forecast import step


def test_resnet50_has_the_tensors_of_the_paper() -> None:
    layers = step.resnet50()
    assert len(layers) == 161
    assert sum(layer.parameters for layer in layers) == 25_557_032
    assert layers[-1].parameters == 9_408, "conv1 is reached last"
    ready = step.ready_s(layers, 1.0)
    assert ready == sorted(ready) and ready[-1] == pytest.approx(1.0)
