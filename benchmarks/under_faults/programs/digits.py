"""The training of digits for programs of others: the model, and the data in our order."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.under_faults.programs.steps import BATCH, RANKS
from torusrun.training.data import order
from torusrun.training.parts import build_parts
from torusrun.training.recipe.train import OptimizerKeys, Train

RATE, MOMENTUM, SEED = 0.1, 0.9, 1


class Digits:
    """The model of our training with its initial weights, and the share of a rank in each of its batches."""

    def __init__(self, rank: int) -> None:
        torch.set_num_threads(1)
        parts = build_parts(Train(batch=BATCH, seed=SEED, optimizer=OptimizerKeys(lr=RATE)), torch.device("cpu"))
        self.rank, self.data, self.model = rank, parts.data, parts.model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE, momentum=MOMENTUM)
        self._loss = nn.CrossEntropyLoss()

    def loss(self, model: nn.Module, step: int) -> Tensor:
        """The loss of this rank's share of the batch after `step`."""
        samples = order.rank_batch(
            step * BATCH, batch=BATCH, rank=self.rank, world=RANKS, samples=self.data.train_samples, seed=SEED
        )
        images, labels = self.data.train_batch(samples)
        found: Tensor = self._loss(model(images), labels)
        return found
