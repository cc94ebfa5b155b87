"""A small batch-normalized residual network for images of some pixels (He et al. 2015, section 4.2, CIFAR form)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from torusrun.training.models.resnet import projection


class Block(nn.Module):
    """Two 3 x 3 convolutions around a shortcut; a stride halves the image on both paths."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity() if stride == 1 and inputs == outputs else projection(inputs, outputs, stride)

    def forward(self, images: Tensor) -> Tensor:
        inner = functional.relu(self.norm1(self.conv1(images)))
        return functional.relu(self.norm2(self.conv2(inner)) + self.shortcut(images))


class SmallResNet(nn.Module):
    """Maps [N, channels, height, width] to [N, classes]: a stem, then `blocks` blocks for each of the `widths`.

    The stem has the stride `stem`; the first block of each width but the first halves the image. Weights are drawn from
    `seed`. With `zero_gamma` the last norm of every block starts at 0, so the block is an identity at first (Goyal et
    al. 2017, section 5.1).
    """

    def __init__(
        self,
        classes: int,
        channels: int,
        widths: tuple[int, ...],
        seed: int,
        *,
        zero_gamma: bool,
        blocks: int = 1,
        stem: int = 1,
        channels_last: bool = False,
    ) -> None:
        super().__init__()
        torch.manual_seed(seed)
        first = nn.Conv2d(channels, widths[0], 3, stem, padding=1, bias=False)
        self.stem = nn.Sequential(first, nn.BatchNorm2d(widths[0]))
        made, inputs = list[Block](), widths[0]
        for stage, width in enumerate(widths):
            for number in range(blocks):
                made.append(Block(inputs, width, 2 if stage and not number else 1))
                inputs = width
        self.blocks = nn.Sequential(*made)
        self.head = nn.Linear(widths[-1], classes)
        if zero_gamma:
            for block in made:
                nn.init.zeros_(block.norm2.weight)
        if channels_last:
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        features = self.blocks(functional.relu(self.stem(images)))
        logits: Tensor = self.head(features.mean(dim=(2, 3)))
        return logits
