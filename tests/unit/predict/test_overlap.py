"""The best buckets against every other partition, and the tensors that they hold."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.predict.overlap import plan, shape, tensors
from training.data.digits import FACTS


def every_partition(count: int) -> list[tuple[int, ...]]:
    cuts = [c for k in range(count) for c in combinations(range(1, count), k)]
    return [tuple(b - a for a, b in zip((0, *c), (*c, count), strict=True)) for c in cuts]


@given(
    st.lists(st.tuples(st.floats(0, 1e-2), st.floats(1, 1e7)), min_size=1, max_size=9),
    st.floats(0, 1e-2),
    st.floats(0, 1e-8),
    st.floats(0.3, 1),
)
def test_no_other_partition_ends_earlier(
    layers: list[tuple[float, float]], alpha: float, beta: float, bend: float
) -> None:
    def cost(size: float) -> float:
        return alpha + beta * size**bend

    ready, sizes = sorted(r for r, _ in layers), [s for _, s in layers]
    found = plan.best_buckets(ready, sizes, cost)
    assert sum(found) == len(sizes)
    ends = {one: plan.end_s(ready, sizes, cost, one) for one in every_partition(len(sizes))}
    assert ends[found] == pytest.approx(min(ends.values()))


def test_of_equal_times_fewer_buckets_are_taken() -> None:
    assert plan.best_buckets([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], lambda size: size) == (3,)


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


def test_buckets_by_number_and_by_size() -> None:
    assert shape.equal_buckets([1.0] * 8, 4) == (2, 2, 2, 2)
    assert shape.capped_buckets([1.0, 5.0, 1.0, 1.0], 5.0) == (2, 2)
