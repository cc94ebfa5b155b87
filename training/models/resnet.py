"""Residual networks for photographs (He et al. 2015): parameters, their order and the outputs are torchvision's.

There are two versions. In v1 the first 1 x 1 convolution of a bottleneck has the stride, as in the paper. In v1.5 the
3 x 3 has it, as in torchvision and in MLPerf. A basic block has it in its first 3 x 3 in both.

SmallResNet is for images of some pixels (He et al. 2015, section 4.2, CIFAR form).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from torusrun.training.models.layers import STEM_WIDTH, WIDTHS, Init, Start, Version

OF_CUT_NORMAL = 0.87962566103423978  # the standard deviation of N(0, 1) without what is beyond 2


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions around a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, downsample: nn.Module | None, version: Version) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = downsample

    @property
    def last_norm(self) -> nn.BatchNorm2d:
        """Before the sum with the shortcut."""
        return self.bn2

    def forward(self, images: Tensor) -> Tensor:
        inner = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(images)))))
        inner += images if self.downsample is None else self.downsample(images)
        summed: Tensor = self.relu(inner)
        return summed


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions around a shortcut."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, downsample: nn.Module | None, version: Version) -> None:
        super().__init__()
        first, second = (stride, 1) if version == "v1" else (1, stride)
        self.conv1 = nn.Conv2d(inputs, width, 1, first, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, second, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    @property
    def last_norm(self) -> nn.BatchNorm2d:
        """Before the sum with the shortcut."""
        return self.bn3

    def forward(self, images: Tensor) -> Tensor:
        inner = self.relu(self.bn1(self.conv1(images)))
        inner = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(inner)))))
        inner += images if self.downsample is None else self.downsample(images)
        summed: Tensor = self.relu(inner)
        return summed


class ResNet(nn.Module):
    """Maps [N, channels, height, width] of any size to [N, classes]; `blocks` are the counts of the four stages.

    Weights are drawn from `seed`, as `start` says; `channels_last` changes none of them.
    """

    def __init__(
        self,
        blocks: Sequence[int],
        *,
        bottleneck: bool,
        classes: int,
        channels: int,
        seed: int,
        version: Version,
        start: Start,
        channels_last: bool,
    ) -> None:
        super().__init__()
        torch.manual_seed(seed)
        block = Bottleneck if bottleneck else BasicBlock
        self.conv1 = nn.Conv2d(channels, STEM_WIDTH, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(STEM_WIDTH)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        inputs, stages = STEM_WIDTH, list[nn.Module]()
        for width, count in zip(WIDTHS, blocks, strict=True):
            made = list[nn.Module]()
            for number in range(count):
                stride, outputs = 2 if number == 0 and stages else 1, block.expansion * width
                shortcut = None if stride == 1 and inputs == outputs else projection(inputs, outputs, stride)
                made.append(block(inputs, width, stride, shortcut, version))
                inputs = outputs
            stages.append(nn.Sequential(*made))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(inputs, classes)
        self._draw(start)
        if channels_last:
            self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        features = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            features = stage(features)
        logits: Tensor = self.fc(torch.flatten(self.avgpool(features), 1))
        return logits

    def _draw(self, start: Start) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                _draw_convolution(module.weight, start.init)
        if start.last_std:
            nn.init.normal_(self.fc.weight, 0.0, start.last_std)
        if start.zero_bias:
            nn.init.zeros_(self.fc.bias)
        for module in self.modules():
            if start.zero_gamma and isinstance(module, (BasicBlock, Bottleneck)):
                nn.init.zeros_(module.last_norm.weight)


def _draw_convolution(weight: Tensor, init: Init) -> None:
    """Draw from He et al.'s normal distribution, by the outputs or the inputs of a weight, or from LeCun's.

    LeCun's has the variance 1 / inputs, and is cut off at two standard deviations before that: TensorFlow's default.
    """
    if init == "lecun-normal":
        deviation = math.sqrt(1 / weight[0].numel()) / OF_CUT_NORMAL
        nn.init.trunc_normal_(weight, 0.0, deviation, -2 * deviation, 2 * deviation)
    else:
        nn.init.kaiming_normal_(weight, mode="fan_out" if init == "he-fan-out" else "fan_in", nonlinearity="relu")


def projection(inputs: int, outputs: int, stride: int) -> nn.Module:
    """A shortcut that changes the number of channels, or the size."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


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
