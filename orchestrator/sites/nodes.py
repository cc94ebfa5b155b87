"""The keys of `node:` and the request for nodes, from the facts of the scheduler and the login node."""

from __future__ import annotations

import re
from collections.abc import Iterator

from torusrun.orchestrator.keys.kinds import GPU_TYPE
from torusrun.orchestrator.schedulers.cluster_facts import ClusterFacts, NodeKind
from torusrun.orchestrator.sites.choices import Certainty, Setting
from torusrun.orchestrator.sites.machine import Machine
from torusrun.training.counted import counted

# The architectures of NVIDIA's GPUs by type (developer.nvidia.com/cuda-gpus).
ARCHITECTURES = {
    "p100": "sm_60", "v100": "sm_70", "t4": "sm_75", "a100": "sm_80", "a30": "sm_80", "a40": "sm_86", "l4": "sm_89",
    "l40": "sm_89", "l40s": "sm_89", "h100": "sm_90", "h200": "sm_90", "gh200": "sm_90", "b200": "sm_100",
}  # fmt: skip
RANKS_WITHOUT_GPUS = 4
RECKONED = 0.9  # share of the adapters' rate and of a node's memory


def settings(
    facts: ClusterFacts, kind: NodeKind | None, environment: tuple[str, int] | None, machine: Machine, *, local: bool
) -> Iterator[Setting]:
    """The keys of a node of this kind; `environment` is a name with its slots, `local`: this machine is the node."""
    command = facts.commands.get("nodes", "")
    yield from _ranks(kind, environment, command, local)
    if kind and kind.gpus:
        yield from _gpus(kind, command)
    if kind and kind.memory_bytes and facts.asks_memory:
        yield _memory(kind.memory_bytes, command)
    yield from _network(machine, local)


def _ranks(kind: NodeKind | None, environment: tuple[str, int] | None, command: str, local: bool) -> Iterator[Setting]:
    cpus = kind.cpus if kind else None
    if kind and kind.gpus:
        yield Setting("node.ranks", kind.gpus, "one for each GPU")
        ranks = kind.gpus
    elif environment:
        yield Setting("node.ranks", environment[1], f"one for each slot that {environment[0]} gives")
        return  # as far as the scheduler reports, a slot is a core
    else:
        ranks = RANKS_WITHOUT_GPUS if local else min(RANKS_WITHOUT_GPUS, cpus or 1)
        yield Setting("node.ranks", ranks, "the nodes have no GPUs, so any number is possible", Certainty.ASSUMED)
    if cpus:
        counted_by = f"{command}: {counted(cpus, 'CPU')} on a node, hyper-threads included"
        yield Setting("node.cpus_per_rank", max(1, cpus // ranks), counted_by)


def _gpus(kind: NodeKind, command: str) -> Iterator[Setting]:
    called = f" {kind.gpu_type}" if kind.gpu_type else ""
    is_kept = not kind.gpu_type or bool(re.fullmatch(GPU_TYPE.pattern, kind.gpu_type))
    unkept = "" if is_kept else ", a type that node.gpu_type cannot name"
    yield Setting("node.gpus", kind.gpus, f"{command}: {counted(kind.gpus, 'GPU')}{called} on a node{unkept}")
    if kind.gpu_type and is_kept:
        yield Setting("node.gpu_type", kind.gpu_type, command)
    words = re.split(r"[\W_]+", (kind.gpu_type or "").lower())  # as in nvidia_h100_80gb_hbm3
    if architecture := next((ARCHITECTURES[word] for word in words if word in ARCHITECTURES), None):
        yield Setting("node.architecture", architecture, f"the architecture of {kind.gpu_type}")


def _memory(memory_bytes: int, command: str) -> Setting:
    whole, asked = memory_bytes / 2**30, int(memory_bytes * RECKONED)
    value = f"{asked // 2**30}GiB" if asked >= 2**31 else f"{asked // 2**20}MiB"
    return Setting("node.memory", value, f"{command}: {whole:.1f} GiB on a node, of which 90 %")


def _network(machine: Machine, local: bool) -> Iterator[Setting]:
    """The keys of the network: the nodes are assumed to be like this login node; with `local` it is the node."""
    here, like = (Certainty.TOLD, "") if local else (Certainty.ASSUMED, "as on this login node, ")
    if local:
        yield Setting("node.interface", "lo", "the ranks are processes of this machine")
    elif machine.interfaces:
        yield Setting("node.interface", machine.interfaces[0], f"{like}/sys/class/net: over InfiniBand", here)
    if machine.adapters:
        names = [adapter.name for adapter in machine.adapters]
        rate = sum(adapter.bytes_per_s for adapter in machine.adapters) / 1e9
        yield Setting("node.hcas", names, f"{like}/sys/class/infiniband: those that are active", here)
        source = f"{like}/sys/class/infiniband: {rate:.1f} GB/s together, of which 90 %"
        yield Setting("node.inter_node", f"{rate * RECKONED:.1f}GB/s", source, here)
