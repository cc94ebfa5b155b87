"""What checkpoints cost a training: the time of a save, the interval, and the share of the time."""

from __future__ import annotations

from dataclasses import dataclass

from torusrun.training.checkpoint.interval import daly_s, failure_of_ranks_s

# A save of ResNet-50 on two CPU cores (benchmarks/checkpoints.py) is a part for each tensor, the same for all networks
# here, and copying and comparing the numbers. On a GPU the copy takes less, which has not been measured.
SAVE_S, SAVED_BYTES_PER_S = 0.01, 4e9
# A copy in the memory of the node after every step, by one rank: the CPU time on two busy cores
# (benchmarks/results/node-memory-2026-11-27.txt). A GPU copies beside the next step, which has not been measured.
COPY_S, COPIED_BYTES_PER_S, COPIES = 0.002, 4e9, 2
BYTES_PER_PARAMETER = 8  # the weight and its velocity


@dataclass(frozen=True)
class InMemory:
    """A copy of the state in the memory of each node after every step, which takes `copy_s`; `bytes` for all copies."""

    copy_s: float
    bytes: float


@dataclass(frozen=True)
class Saving:
    """What determines the cost of checkpoints: all ranks wait `save_s` for each, which is `measured` or predicted.

    `every_steps` is the interval that the run names; None for Daly's rule. `in_memory` is None without such copies.
    """

    save_s: float
    measured: bool
    every_steps: int | None
    mean_time_to_failure_s: float
    in_memory: InMemory | None = None


@dataclass(frozen=True)
class CheckpointCost:
    """The checkpoints of a run: one save, the interval, and its share of the time.

    `memory_share` is the share of the copies in memory; 0.0 without them, or if the time of a step is not known.
    """

    save_s: float
    measured: bool
    by_rule: bool
    interval_s: float
    share: float
    mean_time_to_failure_s: float
    in_memory: InMemory | None = None
    memory_share: float = 0.0


def mean_time_to_failure_s(of_node_s: float | None, nodes: int, ranks: int) -> float:
    """The mean time between failures of a job, by that of a node; without it by Meta's rate for as many GPUs."""
    return of_node_s / nodes if of_node_s else failure_of_ranks_s(ranks)


def predicted_s(parameters: float) -> float:
    """The predicted time that all ranks wait for a save."""
    return SAVE_S + BYTES_PER_PARAMETER * parameters / SAVED_BYTES_PER_S


def in_memory(parameters: float) -> InMemory:
    """The predicted cost of copies in the memory of a node."""
    state_bytes = BYTES_PER_PARAMETER * parameters
    return InMemory(COPY_S + state_bytes / COPIED_BYTES_PER_S, COPIES * state_bytes)


def cost(saving: Saving, step_s: float) -> CheckpointCost:
    """The cost of checkpoints where a step takes `step_s`."""
    by_rule = saving.every_steps is None
    failure_s = saving.mean_time_to_failure_s
    interval_s = daly_s(saving.save_s, failure_s) if saving.every_steps is None else saving.every_steps * step_s
    interval_s = max(interval_s, step_s)
    share = saving.save_s / (interval_s + saving.save_s)
    copies = saving.in_memory
    memory_share = copies.copy_s / (step_s + copies.copy_s) if copies and step_s else 0.0
    return CheckpointCost(saving.save_s, saving.measured, by_rule, interval_s, share, failure_s, copies, memory_share)
