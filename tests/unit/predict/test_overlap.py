"""The tensors that buckets hold, and when their gradients are ready."""

import pytest

from orchestrator.predict.overlap import tensors
from training.data.digits import FACTS


def test_resnet50_has_the_tensors_of_the_paper() -> None:
    layers = tensors.resnet50()
    assert len(layers) == 161
    assert sum(layer.parameters for layer in layers) == 25_557_032
    assert layers[-1].parameters == 9_408, "conv1 is reached last"
    ready = tensors.ready_s(layers, 1.0)
    assert ready == sorted(ready) and ready[-1] == pytest.approx(1.0)


def test_the_facts_of_the_small_network_are_those_of_its_modules() -> None:
    torch = pytest.importorskip("torch")
    from training.models.resnet_digits import build, facts

    model, told = build(classes=10, shape=(1, 8, 8), seed=1), facts(FACTS)
    assert [tensor.parameters for tensor in told.tensors] == [p.numel() for p in model.parameters()]
    statistics = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    assert told.statistics == sum(buffer.numel() for buffer in statistics)
    counted: list[int] = []
    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d | torch.nn.Linear):
            module.register_forward_hook(lambda m, _, out: counted.append(m.weight.numel() * out[0, 0].numel()))
    model(torch.zeros(1, *FACTS.shape))
    assert sum(tensor.work for tensor in told.tensors) == sum(counted)
