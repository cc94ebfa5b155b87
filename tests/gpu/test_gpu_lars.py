"""LARS on the device against the loop over the tensors in float64: Triton on a card, C++ or foreach on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.lars import shapes
from tests.training.lars_loop import Loop
from torusrun.training.optim.kernel import Piece, Rule
from torusrun.training.optim.lars import LARS, kernel_for
from torusrun.training.recipe.train import LarsKeys

ODD = [(1,), (7,), (3, 5), (4, 1, 3, 3), (33,), (5, 4099), (130, 257)]
STEPS = ((0.4, 1.0), (0.1, 0.25), (0.0, 1.0), (0.9, 1.1))  # the rate, and by what velocities change first
KEYS = {
    "inside": LarsKeys(trust=0.02),
    "outside": LarsKeys(trust=0.02, lr_in_momentum=False, eps=1e-6),
    "1.14": LarsKeys(trust=0.02, lr_in_momentum=False, ratio_in_momentum=False, ratio_decay=0.1),
}


def drawn(sizes: Sequence[tuple[int, ...]], aligned: bool, device: torch.device | str = "cpu") -> list[Piece]:
    """The same numbers on every device; the third tensor is zero, and has no norm."""
    draw = torch.Generator().manual_seed(3)

    def tensor(shape: tuple[int, ...], scale: float) -> torch.Tensor:
        begin = 0 if aligned else 1
        flat = torch.randn(begin + torch.Size(shape).numel(), generator=draw) * scale
        return flat.to(device)[begin:].view(shape)

    def piece(shape: tuple[int, ...], scale: float) -> Piece:
        weight, gradient, velocity = (tensor(shape, scale) for _ in range(3))
        return Piece(weight, gradient, velocity, len(shape) > 1)

    return [piece(shape, 0.0 if number == 2 else 1.0) for number, shape in enumerate(sizes)]


def in_float64(piece: Piece) -> Piece:
    weight, gradient, velocity, scaled = piece
    return Piece(weight.double().cpu(), gradient.double().cpu(), velocity.double().cpu(), scaled)


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("sizes", [ODD, list(shapes())[:16]], ids=["odd", "resnet50"])
def test_a_step_is_that_of_the_loop(device: torch.device, sizes: list[tuple[int, ...]], keys: LarsKeys) -> None:
    rule = Rule(0.9, 1e-3, keys)
    pieces = drawn(sizes, sizes is not ODD, device)
    kernel, why = kernel_for([piece.weight for piece in pieces], rule)
    assert device.type == "cpu" or not why, f"on a card LARS is one of Triton's kernels: {why}"
    exact, loop = [in_float64(piece) for piece in pieces], Loop(rule)
    for rate, change in STEPS:
        kernel.move(pieces, rate, change=change)
        loop.move(exact, rate, change=change)
    for mine, right in zip(pieces, exact, strict=True):
        for got, wanted in ((mine.weight, right.weight), (mine.velocity, right.velocity)):
            largest = max(1.0, float(wanted.abs().max()))
            assert (got.cpu() - wanted).abs().max() <= 2e-6 * len(STEPS) * largest


def test_two_steps_from_the_same_state_have_the_same_bits(device: torch.device) -> None:
    """Ranks keep replicas: sums must have a fixed order."""
    states = []
    for _ in range(2):
        pieces = drawn(ODD, False, device)
        kernel, _ = kernel_for([piece.weight for piece in pieces], Rule(0.9, 1e-3, KEYS["inside"]))
        for rate, change in STEPS:
            kernel.move(pieces, rate, change=change)
        states.append([piece.weight.cpu() for piece in pieces])
    assert all(map(torch.equal, *states))


class Operations(TorchDispatchMode):
    """Lists the operations of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found.append(function.name())
        return function(*args, **(kwargs or {}))


@pytest.mark.needs("c++")
def test_a_step_over_the_same_tensors_needs_no_operation_of_torch(device: torch.device) -> None:
    """On a card it is two launches of Triton's kernels, and the host does nothing for each tensor but look at it."""
    net = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4))).to(device)
    lars = LARS(net, 0.9, 1e-3, LarsKeys(trust=0.02, form="fused"))
    for weight in net.parameters():
        weight.grad = torch.ones_like(weight)
    with Operations() as first:
        lars.step(0.1)
    with Operations() as second:
        lars.step(0.2)
    assert len(first.found) >= 8 and not second.found
    if device.type == "cuda":
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            lars.step(0.1)
            torch.cuda.synchronize()
        assert sorted(each.name for each in profile.events() if "block" in each.name) == ["move_block", "square_block"]
