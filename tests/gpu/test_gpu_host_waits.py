"""A step does not wait for the device: on a card torch raises at the first wait, on a CPU reads of results are counted.

fp16 waits once: only the finished gradients show whether to skip the step. After its first steps, which measure for the
plan of buckets, a training takes all others without a wait; the loss is read one step late, when it has arrived.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.step import learner
from torusrun.training.learner import Learner
from torusrun.training.recipe.train import LarsKeys, ModelKeys, OptimizerKeys, Train
from torusrun.training.sync.planner import PROFILED_STEPS

READS = {"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal", "aten::is_nonzero"}
MODEL = ModelKeys("resnet-small", {"widths": (8, 16)})
LARS = OptimizerKeys("lars", lr=0.5, lars=LarsKeys(trust=0.02))
WITHOUT: dict[str, dict[str, Any]] = {
    "sgd": {},
    "lars": {"optimizer": LARS},
    "bf16": {"precision": "bf16", "optimizer": LARS},
    "micro-batches": {"accumulate": 2},
    "clipped": {"clip_norm": 1.0},
}  # fmt: skip


class Reads(TorchDispatchMode):
    """Counts the operations whose result the host reads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (name := function.name().split(".")[0]) in READS:
            self.found.append(name)
        return function(*args, **(kwargs or {}))


@contextmanager
def no_waits(device: torch.device) -> Iterator[list[str]]:
    """The reads of tensors within the block, on a CPU. On a card the first wait raises RuntimeError."""
    if device.type == "cpu":
        with Reads() as reads:
            yield reads.found
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield []
    finally:
        torch.cuda.set_sync_debug_mode("default")


def warm(device: torch.device, folder: Path, **keys: Any) -> Learner:
    """A training after the steps that measure, compile and choose algorithms."""
    made, _ = learner(Train(model=MODEL, batch=16, epochs=50, **keys), device, folder)
    for _ in range(PROFILED_STEPS + 3):
        made.step(stop=False)
    return made


@pytest.mark.parametrize("what", WITHOUT)
def test_a_step_waits_for_nothing(alone: torch.device, tmp_path: Path, what: str) -> None:
    made = warm(alone, tmp_path, **WITHOUT[what])
    with no_waits(alone) as reads:
        for _ in range(3):
            made.step(stop=False)
    assert not reads, "the host reads a result in each step: on a GPU it would wait for the device"


def test_fp16_waits_once_in_a_step(alone: torch.device, tmp_path: Path) -> None:
    """So the check sees a wait."""
    made = warm(alone, tmp_path, precision="fp16")
    if alone.type == "cuda":
        with pytest.raises(RuntimeError, match="synchron"), no_waits(alone):
            made.step(stop=False)
        return
    with no_waits(alone) as reads:
        for _ in range(3):
            made.step(stop=False)
    assert reads == ["aten::_local_scalar_dense"] * 3
