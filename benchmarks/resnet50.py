"""ResNet-50 v1.5 as a module (He et al. 2015, with the stride in the 3 x 3 convolution): what benchmarks train."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # width, blocks


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions around a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.inner = nn.Sequential(
            *_normalized(inputs, width, 1, 1), nn.ReLU(inplace=True),
            *_normalized(width, width, 3, stride), nn.ReLU(inplace=True),
            *_normalized(width, outputs, 1, 1),
        )  # fmt: skip
        projects = stride > 1 or inputs != outputs
        self.shortcut = nn.Sequential(*_normalized(inputs, outputs, 1, stride)) if projects else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        return functional.relu(self.inner(images) + self.shortcut(images), inplace=True)


def resnet50(classes: int = 1000) -> nn.Module:
    """[N, 3, height, width] to [N, classes]; 161 tensors, 25,557,032 parameters for 1000 classes."""
    layers: list[nn.Module] = [*_normalized(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for width, blocks in STAGES:
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, 2 if block == 0 and width > 64 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def _normalized(inputs: int, outputs: int, side: int, stride: int) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(inputs, outputs, side, stride, side // 2, bias=False), nn.BatchNorm2d(outputs)
