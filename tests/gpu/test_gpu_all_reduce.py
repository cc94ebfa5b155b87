"""All-reduces of four ranks while the device computes: each reads what was computed before it, and is waited for.

On a card the ranks use NCCL, each phase in a stream of its own, on one card if there are fewer cards than ranks. The
numbers of the vectors are written by the device after a delay, so that a stream that does not wait reads others. On
the CPU the same checks use gloo.
"""

from __future__ import annotations

import torch

from benchmarks.gpu.one_card import together
from torusrun.training.collectives.all_reduce import build
from torusrun.training.collectives.chunks import Span

WORLD, ROUNDS = 4, 2
LENGTHS = (5, 4096, 100_001, 262_144)  # some do not divide by the ranks, and travel as copies
ROUNDING = {"fp32": 1e-6, "fp16": 3e-3, "bf16": 3e-2}  # of sums and wires, for numbers up to 1
CYCLES = 20_000_000  # about 10 ms of a card


def numbers(rank: int, length: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return 2 * torch.rand(length, generator=generator) - 1


def delay(device: torch.device) -> None:
    """Keep the current stream busy."""
    if device.type == "cuda":
        torch.cuda._sleep(CYCLES)


def beside_compute(rank: int, device: torch.device, name: str, dims: tuple[int, ...], wire: str) -> list[float]:
    """The largest error of each round. All vectors of a round are under way at the same time."""
    spans = {
        "hybrid": (Span(0, "hierarchical"), Span(10_000, "flat")),
        "auto": (Span(0, "flat"), Span(10_000, "torus")),
    }
    all_reduce = build(name, dims, wire, spans.get(name, ()))  # type: ignore[arg-type]
    busy, errors = torch.randn(256, 256, device=device), []
    for number in range(ROUNDS):
        own = [numbers(rank, length, number).to(device) for length in LENGTHS]
        vectors = [torch.zeros(length, device=device) for length in LENGTHS]
        started = []
        for vector, right in zip(vectors, own, strict=True):
            delay(device)
            vector.copy_(right)
            started.append(all_reduce.start(vector))
            torch.full((len(vector),), float("nan"), device=device)  # takes memory that was freed too early
            busy = torch.tanh(busy @ busy)
        delay(device)
        found = []
        for vector, pending in zip(vectors, started, strict=True):
            pending.wait()
            found.append(vector.clone())
            vector.fill_(float("nan"))  # a collective that is late would read or leave these
        errors.append(max(map(error, found, LENGTHS, [number] * len(found))))
    return errors


def error(found: torch.Tensor, length: int, seed: int) -> float:
    exact = sum(numbers(rank, length, seed).double() for rank in range(WORLD)) / WORLD
    return float((found.cpu().double() - exact).abs().nan_to_num(1e9).max())


CASES = [
    ("torus", (2, 2), "fp32"), ("torus", (4, 1), "bf16"), ("torus", (1, 2, 2), "fp16"),
    ("flat", (2, 2), "fp32"), ("hierarchical", (2, 2), "bf16"), ("hybrid", (2, 2), "fp32"), ("auto", (2, 2), "bf16"),
]  # fmt: skip


def all_cases(rank: int, device: torch.device) -> list[list[float]]:
    """In one set of ranks, which take long to start."""
    return [beside_compute(rank, device, *case) for case in CASES]


def test_means_are_right_while_the_device_computes(device: torch.device) -> None:
    for rank, errors in enumerate(together(WORLD, device.type, all_cases)):
        for (name, dims, wire), found in zip(CASES, errors, strict=True):
            assert max(found) < ROUNDING[wire], f"rank {rank}: {name} over {dims} in {wire}: errors {found} by round"


def test_every_rank_holds_the_same_bits(device: torch.device) -> None:
    first, *others = together(WORLD, device.type, bits)
    assert all(other == first for other in others), "replicas drift apart if ranks compute other means"


def bits(rank: int, device: torch.device) -> list[float]:
    vector = numbers(rank, 100_000, 11).to(device)
    build("torus", (2, 2), "bf16").mean_(vector)
    return [float(each) for each in vector.cpu()[::97]]
