"""The part of a node for each local rank: a GPU, its nearest adapter, and a share of the nearest cores.

A plan shows `bindings`. On the node, the wrapper of each rank binds itself by the same `share`, within its job's cores.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from torusrun.orchestrator.keys.site import Node
from torusrun.orchestrator.place.cost.nccl import compute_capability
from torusrun.orchestrator.place.hosts.hostlist import numbers
from torusrun.orchestrator.place.hosts.model import Link, Nic, NodeType


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
    cores = beside(node, ranks_per_node)
    return tuple(
        Binding(i, gpu, next((nic.name for nic in node.nics if gpu in nic.gpus), None), share(cores, i))
        for i, gpu in enumerate(_gpus(node, ranks_per_node))
    )


def beside(node: NodeType, ranks_per_node: int) -> tuple[tuple[int, ...], ...]:
    """The cores beside each local rank's GPU, which several ranks may share; empty if unknown."""
    gpus = _gpus(node, ranks_per_node)
    return tuple(node.gpu_cores[gpu] if gpu < len(node.gpu_cores) else () for gpu in gpus)


def share(beside: Sequence[Sequence[int]], local_rank: int, allowed: Collection[int] | None = None) -> tuple[int, ...]:
    """A rank's even part of the cores that it shares with others, among the `allowed` ones (default: all).

    Each run of consecutive numbers is divided separately: a core's hardware threads are numbered either one after the
    other or in a second run like the first, and in both cases a rank gets whole cores.
    """
    usable = [tuple(core for core in cores if allowed is None or core in allowed) for cores in beside]
    mine = usable[local_rank]
    sharers = [i for i, cores in enumerate(usable) if cores == mine]
    place = sharers.index(local_rank)
    parts = [_part(run, len(sharers), place) for run in _runs(mine)]
    if all(parts):
        return tuple(core for part in parts for core in part)
    return _part(mine, len(sharers), place) or mine


def bind(beside: Sequence[Sequence[int]], local_rank: int) -> None:
    """Bind this process to its share of its job's cores here; do nothing if there are none."""
    with contextlib.suppress(OSError):
        if cores := share(beside, local_rank, os.sched_getaffinity(0)):
            os.sched_setaffinity(0, cores)


def _gpus(node: NodeType, ranks_per_node: int) -> list[int]:
    return [local_rank % max(1, node.gpus) for local_rank in range(ranks_per_node)]


def _part(cores: Sequence[int], parts: int, place: int) -> tuple[int, ...]:
    each = len(cores) // parts
    return tuple(cores[place * each : (place + 1) * each])


def _runs(cores: Sequence[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for core in cores:
        if runs and core == runs[-1][-1] + 1:
            runs[-1].append(core)
        else:
            runs.append([core])
    return runs
