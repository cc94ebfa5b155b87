"""The first convolution of ResNet-50, for whose three channels cuDNN may lack a fast kernel: what other forms take.

`python -m benchmarks.gpu.stem [--device cpu --small]`. Padded channels are zero and change no result. "blocks" takes
2 x 2 pixels as channels, with the same sums: 7 x 7 with stride 2 becomes 4 x 4. Medians of forward, and of forward
with the weights' gradients, channels last.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

import torch
from torch import nn

from benchmarks.gpu import card
from benchmarks.gpu.clock import times_ms
from torusrun.training.collectives import device as devices

ROUNDS, WARM_UP = 20, 5
# Channels, and whether of blocks.
FORMS = {"3 channels": (3, False), "4": (4, False), "8": (8, False), "blocks, 12": (12, True), "16": (16, True)}


def median_ms(precision: torch.dtype, channels: int, blocks: bool, batch: int, side: int, device: torch.device) -> str:
    """Forward, and with the weights' gradients."""
    kernel, stride, padding = (4, 1, 0) if blocks else (7, 2, 3)
    made = nn.Conv2d(channels, 64, kernel, stride, padding, bias=False).to(device, precision)
    layer = made.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    size = side // 2 + 3 if blocks else side
    images = torch.randn(batch, channels, size, size, device=device, dtype=precision)
    images = images.to(memory_format=torch.channels_last)
    gradient = torch.ones_like(layer(images))

    def both() -> None:
        layer.weight.grad = None
        layer(images).backward(gradient)

    found = []
    for act in (lambda: layer(images), both):
        times_ms(act, WARM_UP, device)
        found.append(statistics.median(times_ms(act, ROUNDS, device)))
    return "".join(f"{each:10.2f}" for each in found)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.stem")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--small", action="store_true", help="two images of 32 x 32")
    chosen = parser.parse_args(arguments)
    device, (batch, side) = devices.prepare(chosen.device, 0), (2, 32) if chosen.small else (256, 224)
    print(f"{card.facts(device)}\n\nms of {batch} images of {side} x {side}: forward, and with the gradients\n")
    print(f"{'':16}{'bf16':>20}{'fp16':>20}")
    for name, form in FORMS.items():
        rows = [median_ms(each, *form, batch, side, device) for each in (torch.bfloat16, torch.float16)]
        print(f"{name:16}{''.join(rows)}", flush=True)


if __name__ == "__main__":
    main()
