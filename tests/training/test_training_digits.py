"""The digits in other views: of another size, and not moved."""

from __future__ import annotations

import torch

from torusrun.training.data.digits import build
from torusrun.training.data.view import View

SAMPLES = [(0, 5), (0, 6), (1, 5)]


def test_a_view_of_another_size_stretches_the_same_digits() -> None:
    digits = build(seed=1)
    small, labels = digits.train_batch(SAMPLES)
    digits.look(View(size=16, test_size=12))
    large, same = digits.train_batch(SAMPLES)
    assert small.shape == (3, 1, 8, 8) and large.shape == (3, 1, 16, 16) and torch.equal(labels, same)
    halved = torch.nn.functional.avg_pool2d(large, 2)
    assert torch.corrcoef(torch.stack([small.flatten(), halved.flatten()]))[0, 1] > 0.97
    assert digits.test_shard(0, 2)[0].shape == (180, 1, 12, 12)


def test_without_augment_an_image_is_the_same_in_every_epoch() -> None:
    digits = build(seed=1)
    moved = digits.train_batch([(epoch, 5) for epoch in range(8)])[0]
    assert not all(torch.equal(moved[0], each) for each in moved)
    digits.look(View(augment=False))
    still = digits.train_batch([(epoch, 5) for epoch in range(8)])[0]
    assert all(torch.equal(still[0], each) for each in still)


def test_the_default_view_changes_no_bit() -> None:
    digits, other = build(seed=1), build(seed=1)
    other.look(View())
    assert torch.equal(digits.train_batch(SAMPLES)[0], other.train_batch(SAMPLES)[0])
    assert torch.equal(digits.test_shard(0, 1)[0], other.test_shard(0, 1)[0])
