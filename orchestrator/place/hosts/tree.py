"""Build a cluster from its topology: the hosts of each leaf switch, the parent of each switch, and the bandwidths."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.place.hosts.model import Cluster, Host, Link, NodeType, Switch

UPLINK_S = 1e-6  # latency of every uplink on a message's way, added to the network's latency [from memory]


@dataclass(frozen=True)
class Tree:
    """A topology: the hosts of every leaf switch, and the parent of every switch that has one."""

    leaves: Mapping[str, Sequence[str]]
    parents: Mapping[str, str] = field(default_factory=dict)


def cluster_of(
    tree: Tree,
    node: NodeType,
    uplink_share: float,
    source: str,
    slow: Mapping[str, float] = MappingProxyType({}),
) -> Cluster:
    """The cluster: a leaf's uplink carries `uplink_share` of its hosts' total traffic; a higher switch's uplink carries
    all traffic from below.

    `slow` are hosts and switches with slow links, with the share of bandwidth left. Raises SiteError for a host on two
    leaves, a cycle of switches, or a fault of an unknown host or switch.
    """
    _check_once(tree, source)
    top = _tops(tree)
    capacity = _uplinks(tree, node.inter_node.bandwidth_bytes_per_s * uplink_share)
    switches = []
    for name in dict.fromkeys([*tree.leaves, *tree.parents, *tree.parents.values()]):  # leaves first
        parent = tree.parents.get(name) or (top if name != top else None)
        uplink = Link(capacity[name] * slow.get(name, 1.0), UPLINK_S) if parent else None
        switches.append(Switch(name, parent, uplink))
    if top not in tree.parents.values() and top not in tree.leaves:
        switches.append(Switch(top))
    hosts = tuple(
        Host(name, leaf, node.inter_node.slowed(slow.get(name, 1.0)), node.gpus)
        for leaf, names in tree.leaves.items()
        for name in names
    )
    known = {host.name for host in hosts} | {switch.name for switch in switches}
    if strange := [name for name in slow if name not in known]:
        raise SiteError(f"{source}: 'slow' names {', '.join(strange)}, which the topology does not have")
    return Cluster(node, hosts, tuple(switches), source)


def _check_once(tree: Tree, source: str) -> None:
    leaf_of: dict[str, str] = {}
    for leaf, names in tree.leaves.items():
        for name in names:
            if name in leaf_of:
                raise SiteError(
                    f"{source}: {name} is below both {leaf_of[name]} and {leaf}; a host has one leaf switch"
                )
            leaf_of[name] = leaf
    if not leaf_of:
        raise SiteError(f"{source}: it has no hosts")


def _tops(tree: Tree) -> str:
    """The top switch; if several switches have no parent, a new one above them."""
    names = dict.fromkeys([*tree.leaves, *tree.parents.values()])
    tops = [name for name in names if name not in tree.parents]
    return tops[0] if len(tops) == 1 else "(above)"


def _uplinks(tree: Tree, host_bytes_per_s: float) -> Mapping[str, float]:
    """The total bandwidth from below every switch."""
    capacity: dict[str, float] = defaultdict(float)
    for leaf, names in tree.leaves.items():
        step: str | None = leaf
        for _ in range(len(tree.parents) + 1):  # a cycle ends here; it is reported when the cluster is made
            if step is None:
                break
            capacity[step] += len(names) * host_bytes_per_s
            step = tree.parents.get(step)
    return capacity
