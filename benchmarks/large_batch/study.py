"""The two studies: what all trainings of one have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Study:
    """Images of `data` with `size` pixels a side, `resnet-small` of these widths, and the batches of SGD and LARS.

    The first of `batches` is the small one, `large` that of the recipes, None without them. `seeds` are those of the
    mean; another one, CHOOSES, finds the rate.
    """

    data: str
    size: int
    epochs: int
    warm_up: float  # of them
    batches: tuple[int, ...]
    large: int | None
    seeds: tuple[int, ...]
    widths: tuple[int, ...]
    blocks: int = 1
    stem: int = 2
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"

    @property
    def options(self) -> dict[str, int | tuple[int, ...]]:
        """Those of resnet-small."""
        return {"widths": self.widths, "blocks": self.blocks, "stem": self.stem}


CHOOSES = 1
MNIST = Study("mnist", 14, 15, 3.0, (256, 2048, 8192, 15000), 8192, (2, 3, 4, 5, 6), (8, 16, 32))
# ResNet-18 as trained on CIFAR-10 in kuangliu/pytorch-cifar, 11.2 million weights (from memory). For one card.
CIFAR10 = Study(
    "cifar10", 32, 30, 6.0, (1024, 4096, 16384), None, (2, 3), (64, 128, 256, 512), blocks=2, stem=1, precision="bf16"
)
STUDIES = {study.data: study for study in (MNIST, CIFAR10)}
