"""A node as hwloc's `lstopo-no-graphics` shows it: NUMA nodes with their processing units and adapters."""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.errors import SiteError


@dataclass(frozen=True)
class Numa:
    """A NUMA node by its number in the operating system, and what stands in it."""

    number: int
    cpus: tuple[int, ...]  # as the operating system numbers processing units
    adapters: tuple[str, ...]  # InfiniBand, as mlx5_0


def numa_nodes(text: str) -> list[Numa]:
    """The NUMA nodes in `text`, logical indices with physical ones in brackets, as both hwloc 1 and 2 print them.

    Cores and devices belong to the NUMA node printed last before them. Raises SiteError where there is no NUMA node,
    or one without processing units: the text is cut off, or was made with options that leave them out.
    """
    found: list[tuple[int, list[int], list[str]]] = []
    for line in text.splitlines():
        for number in re.findall(r"NUMANode L#\d+ \(P#(\d+)", line):
            found.append((int(number), [], []))
        if found:
            found[-1][1].extend(int(number) for number in re.findall(r"PU L#\d+ \(P#(\d+)\)", line))
            found[-1][2].extend(re.findall(r'OpenFabrics (?:L#\d+ )?(?:\([^)]*\) )?"([^"]+)"', line))
    if not found:
        raise SiteError(f"there is no NUMA node in what lstopo says: {text.strip()[:80]!r}")
    for number, cpus, _ in found:
        if not cpus:
            raise SiteError(f"what lstopo says is cut off: NUMA node {number} has no processing units")
    return [Numa(number, tuple(cpus), tuple(adapters)) for number, cpus, adapters in found]
