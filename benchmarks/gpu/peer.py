"""What a plain user writes: torchvision's ResNet-50, channels last, autocast, fused SGD; bytes travel pinned.

Without torchvision the network is ours, which has the same parameters and the same outputs.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from torusrun.training.data.normal import BRIGHTEST, IMAGENET
from torusrun.training.models.residual import build_resnet50, build_small
from torusrun.training.step.backward import DTYPES

BATCHES = 4  # different ones, in the host's memory
HAS_TORCHVISION = importlib.util.find_spec("torchvision") is not None


def network(small: bool) -> nn.Module:
    """ResNet-50, or a small network that only shows that the peer runs."""
    if small:
        return build_small(classes=10, shape=(3, 32, 32), seed=0, widths=(4, 8))
    if HAS_TORCHVISION:
        found: nn.Module = importlib.import_module("torchvision.models").resnet50()
        return found
    return build_resnet50(classes=1000, shape=(3, 224, 224), seed=0)


def step_of(precision: str, batch: int, device: torch.device, *, compiled: bool, small: bool) -> Callable[[], None]:
    """A step."""
    torch.set_float32_matmul_precision("high")
    model = network(small).to(device)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-5, fused=True)
    called = torch.compile(model) if compiled else model
    scaler = torch.amp.GradScaler(enabled=precision == "fp16", device=device.type)
    mean, deviation = (torch.tensor(each, device=device).view(1, 3, 1, 1) * BRIGHTEST for each in IMAGENET)
    side, classes = (32, 10) if small else (224, 1000)
    host, number = torch.randint(0, 256, (BATCHES, batch, 3, side, side), dtype=torch.uint8), 0
    if device.type == "cuda":
        host = host.pin_memory()
    labels = torch.randint(0, classes, (batch,), device=device)

    def step() -> None:
        nonlocal number
        number = (number + 1) % BATCHES
        images = host[number].to(device, non_blocking=True).to(memory_format=torch.channels_last)
        images = images.float().sub_(mean).div_(deviation)
        with torch.autocast(device.type, DTYPES[precision]):
            loss = functional.cross_entropy(called(images), labels)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step
