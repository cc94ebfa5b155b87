"""The part of a node for each local rank: its GPUs, their nearest adapter, and a share of their nearest cores.

A plan shows `bindings`. On the node, the wrapper of each rank binds itself by the same `share`, within its job's cores.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torusrun.orchestrator.place.cost.nccl import compute_capability
from torusrun.orchestrator.place.hosts.hostlist import numbers
from torusrun.orchestrator.place.hosts.model import Link, Nic, NodeType

if TYPE_CHECKING:  # a rank needs none of the keys
    from torusrun.orchestrator.keys.site import Node


@dataclass(frozen=True)
class Binding:
    """One local rank's part of its node; adapter and cores are empty if the node's are unknown."""

    local_rank: int
    gpu: int
    hca: str | None
    cores: tuple[int, ...]


def node_type(node: Node) -> NodeType:
    """The node that the site describes; its adapters are divided among the GPUs in order, as among the ranks."""
    gpus = node.gpus or node.ranks
    nics = tuple(
        Nic(name, tuple(gpu for gpu in range(gpus) if gpu * len(node.hcas) // gpus == rail))
        for rail, name in enumerate(node.hcas)
    )
    return NodeType(
        gpus,
        nics,
        Link(node.inter_node_bytes_per_s, node.inter_node_latency_us / 1e6),
        Link(node.intra_node_bytes_per_s, node.intra_node_latency_us / 1e6),
        tuple(map(numbers, node.gpu_cores)),
        compute_capability(node.architecture),
    )


def bindings(node: NodeType, ranks_per_node: int) -> tuple[Binding, ...]:
    """Local rank i gets GPU i (further ranks share the GPUs in turn); ranks beside the same cores divide them."""
    cores, gpus = beside(of_gpus(node), ranks_per_node), max(1, node.gpus)
    return tuple(
        Binding(i, i % gpus, next((nic.name for nic in node.nics if i % gpus in nic.gpus), None), share(cores, i))
        for i in range(ranks_per_node)
    )


def of_gpus(node: NodeType) -> tuple[tuple[int, ...], ...]:
    """The cores beside each GPU of a node; () for a GPU whose cores are unknown."""
    known = node.gpu_cores
    return tuple(known[gpu] if gpu < len(known) else () for gpu in range(max(1, node.gpus)))


def beside(of_gpus: Sequence[tuple[int, ...]], ranks: int) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """For each local rank, the cores beside each of its GPUs, from those beside each GPU that the ranks share in turn.

    Fewer ranks than GPUs have several each.
    """
    return tuple(tuple(of_gpus[rank % max(1, len(of_gpus)) :: ranks]) for rank in range(ranks))


def share(
    beside: Sequence[Sequence[Sequence[int]]], local_rank: int, allowed: Collection[int] | None = None
) -> tuple[int, ...]:
    """A rank's even parts of the cores beside its GPUs, among the `allowed` cores (default: all).

    Each run of consecutive numbers is divided separately: a core's hardware threads are numbered either one after the
    other or in a second run like the first, and in both cases a rank gets whole cores.
    """
    usable = [
        (rank, tuple(core for core in cores if allowed is None or core in allowed))
        for rank, near in enumerate(beside)
        for cores in near
    ]
    own: dict[int, None] = {}
    for mine in dict.fromkeys(cores for rank, cores in usable if rank == local_rank):
        sharers = [rank == local_rank for rank, cores in usable if cores == mine]
        parts = [_part(run, sharers) for run in _runs(mine)]
        whole = [core for part in parts for core in part] if all(parts) else _part(mine, sharers) or mine
        own |= dict.fromkeys(whole)
    return tuple(own)


def bind(beside: Sequence[Sequence[Sequence[int]]], local_rank: int) -> None:
    """Bind this process to its share of its job's cores here; do nothing if there are none."""
    with contextlib.suppress(OSError):
        if cores := share(beside, local_rank, os.sched_getaffinity(0)):
            os.sched_setaffinity(0, cores)


def _part(cores: Sequence[int], sharers: Sequence[bool]) -> Sequence[int]:
    """The part of a rank among the `sharers`, one for each GPU, of which true are its own, side by side."""
    if all(sharers):
        return cores
    first, each = sharers.index(True), len(cores) // len(sharers)
    return cores[first * each : (first + sum(sharers)) * each]


def _runs(cores: Sequence[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for core in cores:
        if runs and core == runs[-1][-1] + 1:
            runs[-1].append(core)
        else:
            runs.append([core])
    return runs
