"""What checkpoints cost a training: the time of a save, the interval, and the share of the time."""

from __future__ import annotations

from dataclasses import dataclass

from training.checkpoint.interval import daly_s

# Meta, "Revisiting Reliability in Large-Scale Machine Learning Research Clusters", arXiv 2410.21680: a job of 1,024
# GPUs fails every 7.9 hours in the mean. Failures of GPUs and nodes are taken as independent (derived).
META_GPUS, META_S = 1024, 7.9 * 3600

# A save of ResNet-50 on two CPU cores (benchmarks/checkpoints.py) is a part for each tensor, the same for all networks
# here, and copying and comparing the numbers. On a GPU the copy takes less, which has not been measured.
SAVE_S, SAVED_BYTES_PER_S = 0.01, 4e9
BYTES_PER_PARAMETER = 8  # the weight and its velocity


@dataclass(frozen=True)
class Saving:
    """What determines the cost of checkpoints: all ranks wait `save_s` for one, which is `measured` or predicted.

    `every_steps` is the interval that the run names; None for Daly's rule.
    """

    save_s: float
    measured: bool
    every_steps: int | None
    mean_time_to_failure_s: float


@dataclass(frozen=True)
class CheckpointCost:
    """The checkpoints of a run: one save, the interval, and its share of the time."""

    save_s: float
    measured: bool
    by_rule: bool
    interval_s: float
    share: float
    mean_time_to_failure_s: float


def mean_time_to_failure_s(of_node_s: float | None, nodes: int, ranks: int) -> float:
    """The mean time between failures of a job, by that of one node; without it by Meta's rate for as many GPUs."""
    return of_node_s / nodes if of_node_s else META_S * META_GPUS / ranks


def predicted_s(parameters: float) -> float:
    """The predicted time that all ranks wait for a save."""
    return SAVE_S + BYTES_PER_PARAMETER * parameters / SAVED_BYTES_PER_S


def cost(saving: Saving, step_s: float) -> CheckpointCost:
    """The cost of checkpoints where a step takes `step_s`."""
    by_rule = saving.every_steps is None
    failure_s = saving.mean_time_to_failure_s
    interval_s = daly_s(saving.save_s, failure_s) if saving.every_steps is None else saving.every_steps * step_s
    interval_s = max(interval_s, step_s)
    share = saving.save_s / (interval_s + saving.save_s)
    return CheckpointCost(saving.save_s, saving.measured, by_rule, interval_s, share, failure_s)
