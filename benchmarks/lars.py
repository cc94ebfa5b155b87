"""LARS over the 161 tensors of ResNet-50 (He et al. 2015, v1.5): timm's and apex's loops, torch's foreach, ours.

`python -m benchmarks.lars [ROUNDS]`: one thread, only the thread's own time, the least of ROUNDS steps (12) in each of
six processes of each form. Momentum 0.9, decay 5e-5, the rate inside the momentum if a form allows it. If there is a
GPU, it is measured too, with its own clock, beside the bytes that two passes move; `ROUNDS cuda` measures nothing else.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import torch
from torch import nn

from benchmarks.gpu.clock import times_ms
from torusrun.training.optim.kernel import Piece
from torusrun.training.optim.lars import LARS
from torusrun.training.recipe.train import LarsKeys

ROUNDS, PROCESSES, WARM_UP = 12, 6, 3
LIMIT_S = 300.0
TENSORS, PARAMETERS = 161, 25_557_032
MOMENTUM, DECAY, TRUST, RATE = 0.9, 5e-5, 0.001, 0.1
Form = Callable[[], None]


def shapes() -> Iterator[tuple[int, ...]]:
    """The parameters' shapes in forward order: convolutions without bias, batch norms, one linear layer."""

    def normalized(outputs: int, inputs: int, kernel: int) -> Iterator[tuple[int, ...]]:
        yield from [(outputs, inputs, kernel, kernel), (outputs,), (outputs,)]

    yield from normalized(64, 3, 7)
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            yield from normalized(width, inputs, 1)
            yield from normalized(width, width, 3)
            yield from normalized(4 * width, width, 1)
            if block == 0:
                yield from normalized(4 * width, inputs, 1)
            inputs = 4 * width
    yield from [(1000, 2048), (1000,)]


class ResNet50(nn.Module):
    """Random parameters and gradients of ResNet-50; no network is computed."""

    def __init__(self, device: str) -> None:
        super().__init__()
        draw = torch.Generator(device).manual_seed(1)
        for number, shape in enumerate(shapes()):
            weight = nn.Parameter(torch.randn(shape, generator=draw, device=device) * 0.05)
            weight.grad = torch.randn(shape, generator=draw, device=device) * 0.001
            self.register_parameter(f"p{number}", weight)
        sizes = [weight.numel() for weight in self.parameters()]
        assert (len(sizes), sum(sizes)) == (TENSORS, PARAMETERS)


def of_torusrun(form: str, device: str) -> Form:
    optimizer = LARS(ResNet50(device), MOMENTUM, DECAY, LarsKeys(trust=TRUST, form=form))  # type: ignore[arg-type]
    return lambda: optimizer.step(RATE)


def pieces_of(device: str) -> list[Piece]:
    weights = [weight for weight in ResNet50(device).parameters()]
    return [Piece(w.detach(), w.grad, torch.zeros_like(w), w.ndim > 1) for w in weights if w.grad is not None]


def foreach(device: str) -> Form:
    """The plain form: each operation of the formula makes a new list, and two lists are copied back."""
    pieces = pieces_of(device)
    weights, velocities = [piece.weight for piece in pieces], [piece.velocity for piece in pieces]
    gradients = [piece.gradient for piece in pieces]

    def step() -> None:
        w, g = torch._foreach_norm(weights), torch._foreach_norm(gradients)
        divisors = torch._foreach_add(g, torch._foreach_mul(w, DECAY))
        ratios = torch._foreach_mul(torch._foreach_div(w, divisors), TRUST)
        scales = [r if piece.scaled else torch.ones_like(r) for r, piece in zip(ratios, pieces, strict=True)]
        updates = torch._foreach_mul(torch._foreach_add(gradients, weights, alpha=DECAY), scales)
        moved = torch._foreach_add(torch._foreach_mul(velocities, MOMENTUM), torch._foreach_mul(updates, RATE))
        torch._foreach_copy_(velocities, moved)
        torch._foreach_copy_(weights, torch._foreach_sub(weights, moved))

    return step


def like_timm(device: str) -> Form:
    """The operations of timm.optim.Lars (huggingface/pytorch-image-models, timm/optim/lars.py, read at 5788a1a)."""
    pieces = pieces_of(device)

    def step() -> None:
        for weight, gradient, velocity, scaled in pieces:
            update = gradient
            if scaled:
                w, g = weight.norm(2.0), gradient.norm(2.0)
                ratio = torch.where(w > 0, torch.where(g > 0, TRUST * w / (g + w * DECAY + 1e-8), 1.0), 1.0)
                update = gradient.add(weight, alpha=DECAY).mul_(ratio)
            velocity.mul_(MOMENTUM).add_(update)
            weight.add_(velocity, alpha=-RATE)

    return step


def like_apex(device: str) -> Form:
    """The operations of apex's LARC around torch.optim.SGD (NVIDIA/apex, apex/parallel/LARC.py, read at 0bfb830).

    It changes the gradients, waits for two norms of each tensor, and scales all tensors. torch's SGD follows.
    """
    pieces = pieces_of(device)
    gradients = [piece.gradient.clone() for piece in pieces]
    velocities = [piece.velocity for piece in pieces]

    def step() -> None:
        for (weight, _, _, _), gradient in zip(pieces, gradients, strict=True):
            w, g = torch.norm(weight), torch.norm(gradient)
            if w != 0 and g != 0:
                ratio = TRUST * w / (g + w * DECAY + 1e-8)
                gradient += DECAY * weight
                gradient *= ratio
        for (weight, _, _, _), gradient, velocity in zip(pieces, gradients, velocities, strict=True):
            velocity.mul_(MOMENTUM).add_(gradient)
            weight.add_(velocity, alpha=-RATE)

    return step


def sgd(device: str) -> Form:
    """torch's fused SGD: no ratio, and so one pass instead of two."""
    return torch.optim.SGD(ResNet50(device).parameters(), RATE, MOMENTUM, weight_decay=DECAY, fused=True).step


def copy(device: str) -> Form:
    source = torch.randn(PARAMETERS, device=device)
    target = torch.empty_like(source)

    def step() -> None:
        target.copy_(source)

    return step


FORMS: dict[str, Callable[[str], Form]] = {
    "timm": like_timm,
    "apex": like_apex,
    "foreach": foreach,
    "foreach, in place": lambda device: of_torusrun("foreach", device),
    "fused": lambda device: of_torusrun("fused", device),
    "torch's fused SGD": sgd,
    "memcpy": copy,
}


def on_cpu(rounds: int) -> dict[str, float]:
    """The least ms of one thread. Each form has its own processes: the heap of one form would slow another."""
    least = dict.fromkeys(FORMS, float("inf"))
    for _ in range(PROCESSES):
        for name in FORMS:
            alone = [sys.executable, "-m", "benchmarks.lars", str(rounds), name]
            ended = subprocess.run(alone, capture_output=True, text=True, check=True, timeout=LIMIT_S)
            least[name] = min(least[name], float(ended.stdout))
    return least


def alone_ms(rounds: int, name: str) -> float:
    """The least of `rounds` steps of one form."""
    torch.set_num_threads(1)
    step = FORMS[name]("cpu")
    step()  # touches the memory
    least_s = float("inf")
    for _ in range(rounds):
        started_s = time.thread_time()
        step()
        least_s = min(least_s, time.thread_time() - started_s)
    return least_s * 1e3


def on_device(rounds: int, device: str) -> tuple[dict[str, float], dict[str, float]]:
    """The least ms of a step by the device's clock, and of the host, which does not wait for the device."""
    least, host, place = dict[str, float](), dict[str, float](), torch.device(device)
    for name, make in FORMS.items():
        step = make(device)
        for _ in range(WARM_UP):
            step()
        least[name] = min(times_ms(step, rounds, place))
        host[name] = min(times_ms(step, rounds, torch.device("cpu")))
        del step
        torch.cuda.empty_cache()
    return least, host


def table(least: dict[str, float], host: dict[str, float] | None = None) -> Iterator[str]:
    head = f"{'form':18s} {'ms':>8s} {'to timm':>12s} {'to foreach':>12s} {'to a copy':>10s}"
    yield head + (f" {'host ms':>10s}" if host else "")
    for name, ms in least.items():
        ratios = [f"{least[other] / ms:.2f}x" for other in ("timm", "foreach")]
        line = f"{name:18s} {ms:8.3f} {ratios[0]:>12s} {ratios[1]:>12s} {ms / least['memcpy']:9.2f}x"
        yield line + (f" {host[name]:10.3f}" if host else "")


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    if len(sys.argv) > 2 and sys.argv[2] in ("cpu", "cuda"):
        torch.set_num_threads(1)
        print("\n".join(table(*on_device(rounds, sys.argv[2]))))
        return
    if len(sys.argv) > 2:
        print(alone_ms(rounds, sys.argv[2]))
        return
    print(f"LARS, {TENSORS} tensors, {PARAMETERS * 4 / 1e6:.1f} MB; torch {torch.__version__}, {platform.machine()}")
    print(f"\nCPU, 1 thread, its own time, least of {PROCESSES} x {rounds}; a copy moves {PARAMETERS * 8 / 1e6:.0f} MB")
    print("\n".join(table(on_cpu(rounds))))
    if not torch.cuda.is_available():
        print("\nGPU: skipped, there is none here. The goal is 0.25 ms on an H100, 20x over a loop.")
        return
    print(f"\nGPU, {torch.cuda.get_device_name()}, least of {rounds}; two passes move {PARAMETERS * 28 / 1e6:.0f} MB")
    print("\n".join(table(*on_device(rounds, "cuda"))))


if __name__ == "__main__":
    main()
