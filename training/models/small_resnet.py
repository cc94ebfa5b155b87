"""A small batch-normalized residual network for 8 x 8 images (He et al. 2015, section 4.2, CIFAR form)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.models.resnet import projection


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
    """Maps [N, 1, 8, 8] to [N, classes]: a stem, then one block per width, halving 8 to 4 to 2 pixels.

    `widths` are the channels by block; weights are drawn from `seed`. With `zero_gamma` the last norm of every block
    starts at 0, so the block is an identity at first (Goyal et al. 2017, section 5.1).
    """

    def __init__(self, classes: int, widths: tuple[int, ...], seed: int, zero_gamma: bool) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.stem = nn.Sequential(nn.Conv2d(1, widths[0], 3, padding=1, bias=False), nn.BatchNorm2d(widths[0]))
        inputs = (widths[0], *widths)
        blocks = [Block(inputs[i], width, 1 if i == 0 else 2) for i, width in enumerate(widths)]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(widths[-1], classes)
        if zero_gamma:
            for block in blocks:
                nn.init.zeros_(block.norm2.weight)

    def forward(self, images: Tensor) -> Tensor:
        features = self.blocks(functional.relu(self.stem(images)))
        logits: Tensor = self.head(features.mean(dim=(2, 3)))
        return logits
