"""Training in 16 bits learns as in fp32: loss curves of the digits, from the same weights and batches."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.step import learner
from torusrun.training.collectives import device as devices
from torusrun.training.recipe.train import ModelKeys, OptimizerKeys, ScheduleKeys, Train

STEPS, WINDOW, NEAR = 80, 10, 0.25
TRAIN = Train(
    model=ModelKeys("resnet-small", {"widths": (8, 16)}), optimizer=OptimizerKeys(lr=0.2), label_smoothing=0.0,
    schedule=ScheduleKeys(warmup_epochs=0.0), epochs=20, batch=64,
)  # fmt: skip


def losses(device: torch.device, folder: Path, **keys: Any) -> tuple[torch.Tensor, int]:
    """The mean loss of each step, and how many steps overflowed."""
    if device.type == "cuda":
        devices.prepare("cuda", 0, keys.get("precision", "fp32"))
    made, _ = learner(Train(**{**vars(TRAIN), **keys}), device, folder)
    found = []
    for _ in range(STEPS):
        made.step(stop=False)
        found.append(made.mean_loss)  # on a card that of the step before
    state: dict[str, float] = made.state().get("loss_scale", {})
    return torch.tensor([each for each in found if not math.isnan(each)]), int(state.get("skipped", 0))


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
def test_a_loss_curve_is_near_that_of_fp32(alone: torch.device, tmp_path: Path, precision: str) -> None:
    """On a CPU tf32 is fp32. Single steps differ more and more, so the means of ten are compared."""
    exact, _ = losses(alone, tmp_path)
    found, skipped = losses(alone, tmp_path, precision=precision)
    usual, other = (each[len(each) % WINDOW :].view(-1, WINDOW).mean(1) for each in (exact, found))
    print(f"{precision} against fp32, {skipped} steps skipped:\n  {other.tolist()}\n  {usual.tolist()}")
    assert usual[-1] < usual[0] - 0.5, "the digits are learned"
    assert (other - usual).abs().max() < NEAR


def test_fp16_skips_steps_that_overflow_and_then_learns(alone: torch.device, tmp_path: Path) -> None:
    found, skipped = losses(alone, tmp_path, precision="fp16", loss_scale=2.0**40)
    print(f"{skipped} steps skipped from 2^40 on")
    assert 10 <= skipped < STEPS / 2, "the scale is halved until the gradients fit in fp16"
    assert found[-WINDOW:].mean() < found[:WINDOW].mean() - 0.3
