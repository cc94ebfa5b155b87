"""The reason for the choice of a grid, in short."""

from __future__ import annotations

from orchestrator.network.hosts.model import Cluster
from orchestrator.network.placement.arrange import Arrangement
from orchestrator.network.placement.fabric import Fabric, fabric
from training.counted import counted

OVERSUBSCRIBED = 1.05  # a ratio above this is mentioned


def reason(chosen: Arrangement, cluster: Cluster) -> str:
    """The levels of the shape, and how narrow the racks' uplinks are."""
    levels = _levels(chosen.rings.dims, chosen.rings.ranks_per_node)
    return f"{levels}{_racks(fabric(cluster, cluster.only(chosen.hosts)))}"


def _levels(dims: tuple[int, ...], per_node: int) -> str:
    if len(dims) == 1:
        return "1 level: all ranks in one group"
    row = dims[0]
    if row == per_node:
        what = "a row is a node"
    elif row % per_node == 0:
        what = f"a row is {counted(row // per_node, 'node')}"
    else:
        what = f"a node has {counted(per_node // row, 'row')}"
    return f"{len(dims)} levels: {what}"


def _racks(tree: Fabric) -> str:
    """The oversubscription of the worst uplink: the bandwidth of the hosts below it over its own."""
    sent = [0.0] * len(tree.uplinks)
    for kind in tree.kinds:
        for uplink in tree.paths[kind]:
            sent[uplink] += tree.host_bytes_per_s[kind]
    ratio = max((s / b for s, b in zip(sent, tree.uplink_bytes_per_s, strict=True)), default=0.0)
    return f", racks are {ratio:.2g}:1 oversubscribed" if ratio > OVERSUBSCRIBED else ""
