"""What a plain user writes: torchvision's ResNet-50, channels last, autocast, fused SGD; bytes travel pinned."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import torch
from torch.nn import functional

from torusrun.training.data.normal import BRIGHTEST, IMAGENET
from torusrun.training.step.backward import DTYPES

BATCHES = 4  # different ones, in the host's memory


def step_of(precision: str, batch: int, device: torch.device, compiled: bool) -> Callable[[], None]:
    """A step. Raises ImportError without torchvision."""
    torch.set_float32_matmul_precision("high")
    model = importlib.import_module("torchvision.models").resnet50().to(device)
    model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-5, fused=True)
    network = torch.compile(model) if compiled else model
    scaler = torch.amp.GradScaler(enabled=precision == "fp16")
    mean, deviation = (torch.tensor(each, device=device).view(1, 3, 1, 1) * BRIGHTEST for each in IMAGENET)
    shape = (BATCHES, batch, 3, 224, 224)
    host, number = torch.randint(0, 256, shape, dtype=torch.uint8).pin_memory(), 0
    labels = torch.randint(0, 1000, (batch,), device=device)

    def step() -> None:
        nonlocal number
        number = (number + 1) % BATCHES
        images = host[number].to(device, non_blocking=True).to(memory_format=torch.channels_last)
        images = images.float().sub_(mean).div_(deviation)
        with torch.autocast(device.type, DTYPES[precision]):
            loss = functional.cross_entropy(network(images), labels)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step
