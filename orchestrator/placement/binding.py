"""What of its node each local rank takes: its GPU, the adapter beside it, its share of the cores beside both."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.cluster.model import NodeType


@dataclass(frozen=True)
class Binding:
    """One local rank's part of its node; no adapter or cores where the node's are not known."""

    local_rank: int
    gpu: int
    hca: str | None
    cores: tuple[int, ...]


def bindings(node: NodeType, ranks_per_node: int) -> tuple[Binding, ...]:
    """Local rank i takes GPU i (ranks beyond the GPUs share them in turn); ranks beside the same cores divide them."""
    gpus = [local_rank % max(1, node.gpus) for local_rank in range(ranks_per_node)]
    cores = [node.gpu_cores[gpu] if gpu < len(node.gpu_cores) else () for gpu in gpus]
    return tuple(
        Binding(i, gpu, next((nic.name for nic in node.nics if gpu in nic.gpus), None), _part(cores, i))
        for i, gpu in enumerate(gpus)
    )


def _part(cores: list[tuple[int, ...]], local_rank: int) -> tuple[int, ...]:
    """This rank's even part of the cores that it shares with others."""
    mine = cores[local_rank]
    sharers = [i for i, theirs in enumerate(cores) if theirs == mine]
    each = len(mine) // len(sharers)
    start = sharers.index(local_rank) * each
    return mine[start : start + each] if each else mine
