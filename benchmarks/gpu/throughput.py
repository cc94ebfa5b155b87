"""Images per second of ResNet-50 on one card, ours beside a plain user's (peer.py), and what each choice is worth.

`python -m benchmarks.gpu.throughput [compiled | eager | choices] [--steps 30]`. Images are random bytes of 224 x 224 in
the memory of the host; few are 32 a step. "fp32 images" normalizes them on the host and sends four times the bytes.
Below each row are the kernels that take most of a step. `--device cpu --small` shows on a CPU that it runs.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.gpu import card, peer
from benchmarks.step import HEAD, Timed, row, row_of
from torusrun.training.collectives import device as devices
from torusrun.training.recipe.train import DataKeys, ModelKeys, OptimizerKeys, Train


class OnHost(Timed):
    """A data set whose images are normalized in the training's thread, before they travel."""

    def train_batch(self, samples: list[tuple[int, int]]) -> Any:
        images, labels = super().train_batch(samples)
        return self._data.normalize_on_device(images), labels

    def normalize_on_device(self, images: torch.Tensor) -> torch.Tensor:
        return images


@dataclass(frozen=True)
class Form:
    name: str
    precision: str = "bf16"
    channels_last: bool = True
    data: type[Timed] = Timed
    batch: int = 256
    peer: bool = False


# The most valuable first. A compiled form takes a minute, at first.
FORMS = {
    "compiled": (
        Form("ours"), Form("peer", peer=True), Form("few", batch=32), Form("peer, few", batch=32, peer=True),
    ),
    "eager": (
        Form("ours"), Form("peer", peer=True), Form("fp16", "fp16"), Form("peer, fp16", "fp16", peer=True),
        Form("few", batch=32), Form("peer, few", batch=32, peer=True),
    ),
    "choices": (
        Form("channels first", channels_last=False), Form("fp32 images", data=OnHost), Form("tf32", "tf32"),
        Form("fp32", "fp32"), Form("fp32, channels first", "fp32", channels_last=False),
    ),
}  # fmt: skip


def measured(form: Form, device: torch.device, steps: int, *, compiled: bool, small: bool) -> str:
    """The row of one form."""
    if device.type == "cuda":
        devices.prepare("cuda", 0, form.precision)
    batch = 2 if small else form.batch
    try:
        if form.peer:
            step = peer.step_of(form.precision, batch, device, compiled=compiled, small=small)
            return row_of(step, batch, device, steps, Timed(None))
        train = Train(
            model=ModelKeys("resnet-small" if small else "resnet50", {"channels_last": form.channels_last}),
            data=DataKeys("synthetic", size=32 if small else 224),
            optimizer=OptimizerKeys("lars"), epochs=1_000_000, batch=batch, compile=compiled,
            precision=form.precision,  # type: ignore[arg-type]
        )  # fmt: skip
        return row(train, device, steps, form.data)
    finally:
        gc.collect()  # graphs hold memory, and their owners refer to one another
        torch.cuda.empty_cache()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.throughput")
    parser.add_argument("forms", nargs="?", choices=FORMS, default="compiled")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--small", action="store_true", help="small networks, and two images of 32 x 32")
    chosen = parser.parse_args(arguments)
    device = devices.prepare(chosen.device, 0)
    dist.init_process_group(devices.backend(device), store=dist.HashStore(), rank=0, world_size=1)
    try:
        has = "torchvision's ResNet-50" if peer.HAS_TORCHVISION else "our ResNet-50, since torchvision is missing"
        print(f"{card.facts(device)}\npeer: a plain loop around {has}\n")
        print(f"{chosen.forms:26}{HEAD}    of the goals, 3,600 and 5,000 a second", flush=True)
        for form in FORMS[chosen.forms]:
            compiled = chosen.forms == "compiled"
            found = measured(form, device, chosen.steps, compiled=compiled, small=chosen.small)
            print(f"{form.name:26}{found}", flush=True)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
