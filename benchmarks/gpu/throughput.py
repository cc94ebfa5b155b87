"""Images per second of ResNet-50 on one card, ours beside torchvision's, and what each choice is worth.

`python -m benchmarks.gpu.throughput [--choices] [--steps 30]`. Images are random bytes of 224 x 224 in the memory of
the host; few are 32 a step. "fp32 images" normalizes them on the host and sends four times the bytes. With
`--device cpu --small` it runs on a CPU.
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
    compile: bool = False
    batch: int = 256
    torchvision: bool = False


# The most valuable first. A compiled form takes a minute, at first.
FORMS = (
    Form("compiled", compile=True),
    Form("torchvision, compiled", compile=True, torchvision=True),
    Form("compiled, few", compile=True, batch=32),
    Form("torchvision, compiled, few", compile=True, batch=32, torchvision=True),
    Form("bf16"),
    Form("torchvision", torchvision=True),
    Form("few", batch=32),
    Form("torchvision, few", batch=32, torchvision=True),
    Form("fp16", "fp16"),
    Form("torchvision, fp16", "fp16", torchvision=True),
)
CHOICES = (
    Form("channels first", channels_last=False),
    Form("fp32 images", data=OnHost),
    Form("tf32", "tf32"),
    Form("fp32", "fp32"),
    Form("fp32, channels first", "fp32", channels_last=False),
)
SMALL = ("bf16", "channels first", "fp32 images")


def measured(form: Form, device: torch.device, steps: int, small: bool) -> str:
    """The row of one form."""
    if device.type == "cuda":
        devices.prepare("cuda", 0, form.precision)
    batch = 2 if small else form.batch
    try:
        if form.torchvision:
            step = peer.step_of(form.precision, batch, device, form.compile)
            return row_of(step, batch, device, steps, Timed(None))
        train = Train(
            model=ModelKeys("resnet-small" if small else "resnet50", {"channels_last": form.channels_last}),
            data=DataKeys("synthetic", size=32 if small else 224),
            optimizer=OptimizerKeys("lars"), epochs=1_000_000, batch=batch, compile=form.compile,
            precision=form.precision,  # type: ignore[arg-type]
        )  # fmt: skip
        return row(train, device, steps, form.data)
    except ImportError as error:
        return f"  left out: {error}"
    finally:
        gc.collect()  # graphs hold memory, and their owners refer to one another
        torch.cuda.empty_cache()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.throughput")
    parser.add_argument("--choices", action="store_true", help="other layouts, precisions and inputs")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--small", action="store_true", help="a small network at 32 x 32, in three forms")
    chosen = parser.parse_args(arguments)
    device = devices.prepare(chosen.device, 0)
    dist.init_process_group(devices.backend(device), store=dist.HashStore(), rank=0, world_size=1)
    try:
        print(f"{card.facts(device)}\n\n{'':26}{HEAD}    of the goals, 3,600 and 5,000 a second")
        for form in CHOICES if chosen.choices else FORMS:
            if not chosen.small or form.name in SMALL:
                print(f"{form.name:26}{measured(form, device, chosen.steps, chosen.small)}", flush=True)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
