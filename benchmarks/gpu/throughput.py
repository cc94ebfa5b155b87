"""Images per second of ResNet-50 on one card, from the plainest form to ours, one change at a time.

`python -m benchmarks.gpu.throughput [--batch 256] [--steps 30]`. Images are random bytes of 224 x 224 in the memory of
the host. "fp32 images" normalizes them on the host and sends four times the bytes. `--device cpu --small` shows on a
CPU that it runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.gpu import card
from benchmarks.step import HEAD, Timed, row
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
    trials: bool = True  # cudnn.benchmark
    data: type[Timed] = Timed
    compile: bool = False


FORMS = (
    Form("fp32, channels first", "fp32", channels_last=False),
    Form("fp32", "fp32"),
    Form("tf32", "tf32"),
    Form("fp16", "fp16"),
    Form("bf16"),
    Form("bf16, channels first", channels_last=False),
    Form("bf16, no cudnn.benchmark", trials=False),
    Form("bf16, fp32 images", data=OnHost),
    Form("bf16, compiled", compile=True),
)
SMALL = ("fp32, channels first", "bf16, no cudnn.benchmark", "bf16, fp32 images")


def measured(form: Form, device: torch.device, batch: int, steps: int, small: bool) -> str:
    """The row of one form."""
    if device.type == "cuda":
        devices.prepare("cuda", 0, form.precision)
    before, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, form.trials
    train = Train(
        model=ModelKeys("resnet-small" if small else "resnet50", {"channels_last": form.channels_last}),
        data=DataKeys("synthetic", size=32 if small else 224),
        optimizer=OptimizerKeys("lars"), epochs=1_000_000, batch=batch, compile=form.compile,
        precision=form.precision,  # type: ignore[arg-type]
    )  # fmt: skip
    try:
        return row(train, device, steps, form.data)
    finally:
        torch.backends.cudnn.benchmark = before
        torch.cuda.empty_cache()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.throughput")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--small", action="store_true", help="a small network at 32 x 32, in three forms")
    chosen = parser.parse_args(arguments)
    device = devices.prepare(chosen.device, 0)
    dist.init_process_group(devices.backend(device), store=dist.HashStore(), rank=0, world_size=1)
    try:
        print(f"{card.facts(device)}\n\n{'':26}{HEAD}    of the goals, 3,600 and 5,000 a second")
        for form in FORMS:
            if not chosen.small or form.name in SMALL:
                print(f"{form.name:26}{measured(form, device, chosen.batch, chosen.steps, chosen.small)}", flush=True)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
