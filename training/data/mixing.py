"""Mixed images: mixup (Zhang et al. 2018, arXiv 1710.09412) and CutMix (Yun et al. 2019, arXiv 1905.04899).

    mixup     image = share image + (1 - share) partner
    CutMix    image = partner within a box of the area 1 - share, at a random place and cut off at the edges;
              share then is the area that is left
    both      target = share target + (1 - share) partner's target

The share is drawn for each batch, and is the same on all ranks. The partner of a sample is its neighbour in the order
of the batch: samples 0 and 1, 2 and 3. That order is random, and so the number of ranks does not change the pairs.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from torusrun.training.data.order import generator


class Mix(NamedTuple):
    """How a batch is mixed: by mixup, or by CutMix with the middle of the box, from 0 to 1, if there is one."""

    share: float
    middle: tuple[float, float] | None


def mix_of(seed: int, samples: int, mixup: float, cutmix: float) -> Mix:
    """The mix of the batch that begins after `samples` samples. If both are given, each batch takes one of them."""
    draw = generator(f"mix/{seed}/{samples}")
    cuts = bool(cutmix) and (not mixup or draw.random_sample() < 0.5)
    alpha = cutmix if cuts else mixup
    share = float(draw.beta(alpha, alpha))
    return Mix(share, (float(draw.random_sample()), float(draw.random_sample())) if cuts else None)


def mixed(mix: Mix, images: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Images [B, ..., height, width] and labels [B], B even, as mixed images and targets [B, classes]."""
    neighbour = torch.arange(len(images), device=images.device) ^ 1
    others = images[neighbour]
    targets = functional.one_hot(labels, classes).float()
    partners = targets[neighbour]
    share = mix.share
    if mix.middle is None:
        images = torch.lerp(others, images, share)
    else:
        height, width = images.shape[-2:]
        top, bottom, left, right = box(mix.share, mix.middle, height, width)
        images = images.clone()
        images[..., top:bottom, left:right] = others[..., top:bottom, left:right]
        share = 1 - (bottom - top) * (right - left) / (height * width)
    return images, torch.lerp(partners, targets, share)


def box(share: float, middle: tuple[float, float], height: int, width: int) -> tuple[int, int, int, int]:
    """Top, bottom, left and right, as in the paper's code."""
    ratio = math.sqrt(1 - share)
    tall, wide = int(height * ratio), int(width * ratio)
    down, across = int(middle[0] * height), int(middle[1] * width)
    edges = down - tall // 2, down + tall // 2, across - wide // 2, across + wide // 2
    ends = height, height, width, width
    top, bottom, left, right = (min(max(edge, 0), end) for edge, end in zip(edges, ends, strict=True))
    return top, bottom, left, right
