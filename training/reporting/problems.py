"""Unusable samples, reported at evaluations."""

from __future__ import annotations

import torch
import torch.distributed as dist

from torusrun.training.recipe.protocols import DataSet
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.reporting.output import warn

SHOWN = 3


class Problems:
    """The `problems` of this rank's data set, if it reports any."""

    def __init__(self, data: DataSet, device: torch.device) -> None:
        self._data, self._device = data, device
        self._told = 0

    def tell(self) -> int:
        """Write the new problems to this rank's output; returns the count over all ranks. All must call it together."""
        found = self._data.problems()
        for problem in found[self._told :]:
            warn(f"training: {problem}")
        self._told = len(found)
        total = torch.tensor([self._told], device=self._device)
        dist.all_reduce(total)
        return int(total)

    def none_tested(self, test_samples: int) -> ConfigError:
        """The error of an evaluation without a good sample; it names the newest bad samples of this rank."""
        newest = "; ".join(self._data.problems()[-SHOWN:])
        return ConfigError(
            f"train.data: none of the {test_samples} test samples can be read, so there is no accuracy: "
            f"{newest or 'the logs of other ranks name them'}; copy these files again"
        )
