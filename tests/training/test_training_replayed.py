"""Which steps are replayed as a CUDA graph. The graph itself is a stand-in: tests/gpu has real ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from torusrun.training.step.mean_gradient import EAGER_STEPS, MOST_SHAPES, Replayed


class Graph:
    def replay(self) -> None:
        self.act(*self.held)


class Device:
    """Sums what it is given, as `act`; a capture keeps the tensors that `act` got."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sums, self.capturing, self.error, self.memory = list[float](), None, "", 10
        monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
        monkeypatch.setattr(torch.cuda, "graph", self.capture)
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 4)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (0, self.memory))

    @contextmanager
    def capture(self, graph: Any, capture_error_mode: str) -> Iterator[None]:
        self.capturing = graph
        yield
        self.capturing = None
        if self.error:
            raise RuntimeError(self.error)

    def act(self, inputs: torch.Tensor, labels: torch.Tensor) -> None:
        if self.capturing:
            self.capturing.act, self.capturing.held = self.act, (inputs, labels)
        else:
            self.sums.append(float(inputs.sum() + labels.sum()))


def batch(size: int, value: float) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.full((size, 2), value), torch.zeros(size, dtype=torch.int64)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return Device(monkeypatch)


def test_each_shape_has_its_graph_which_reads_the_newest_batch(device: Device) -> None:
    replayed = Replayed(device.act)
    for size in (3, 5):
        assert [replayed.replay(*batch(size, 1.0)) for _ in range(EAGER_STEPS + 1)] == [False] * EAGER_STEPS + [True]
    assert replayed.replay(*batch(3, 7.0)) and replayed.replay(*batch(5, 9.0))
    assert device.sums == [6.0, 10.0, 42.0, 90.0]
    replayed.end()
    assert not replayed.replay(*batch(3, 1.0))


def test_more_shapes_than_graphs_are_taken_as_before(device: Device) -> None:
    replayed = Replayed(device.act)
    done = [[replayed.replay(*batch(size, 1.0)) for _ in range(EAGER_STEPS + 1)][-1] for size in range(MOST_SHAPES + 2)]
    assert done == [True] * MOST_SHAPES + [False] * 2


@pytest.mark.parametrize(("error", "memory"), [("operation not permitted\nwhen capturing", 10), ("", 7)])
def test_what_cannot_be_captured_is_said_once(
    device: Device, capsys: pytest.CaptureFixture[str], error: str, memory: int
) -> None:
    device.error, device.memory = error, memory
    replayed = Replayed(device.act)
    assert not any(replayed.replay(*batch(3, 1.0)) for _ in range(EAGER_STEPS + 3))
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and said[0].endswith(error.partition("\n")[0] or "the card's memory does not hold two steps")
