"""This machine's cores, memory and GPUs, as a cluster of one node."""

from __future__ import annotations

import re

from torusrun.orchestrator.schedulers.cluster_facts import Ask, ClusterFacts, NodeKind, Queue, optional

CORES = ("nproc",)
MEMORY = ("cat", "/proc/meminfo")
GPUS = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")


def describe(ask: Ask) -> ClusterFacts:
    names = [line.strip() for line in optional(ask, GPUS).splitlines() if line.strip()]
    cores = optional(ask, CORES).strip()
    kind = NodeKind(
        1, int(cores) if cores.isdecimal() else None, memory_bytes(optional(ask, MEMORY)), len(names), gpu_type(names)
    )
    return ClusterFacts(
        "this machine",
        (Queue("", (kind,), nodes=1, is_default=True),),
        launcher="spawn",
        commands={"nodes": "nvidia-smi" if names else " ".join(CORES)},
    )


def memory_bytes(text: str) -> int | None:
    """MemTotal of /proc/meminfo in bytes, None without one."""
    match = re.search(r"^MemTotal:\s+(\d+) kB", text, re.MULTILINE)
    return int(match[1]) * 2**10 if match else None


def gpu_type(names: list[str]) -> str | None:
    """The type of the GPUs if all are alike, as h100 for 'NVIDIA H100 80GB HBM3', else None."""
    found = {match[1].lower() for name in names if (match := re.search(r"\b([A-Z]{1,2}\d{1,4})\b", name))}
    return found.pop() if len(found) == 1 else None
