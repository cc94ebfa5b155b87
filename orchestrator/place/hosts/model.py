"""A cluster as plain values, and how it is built: nodes with their adapters, and a tree of switches above them.

A tree is enough to compute the bytes on each bundle of cables. The spine switches of a fat tree become one switch,
whose uplinks have the bandwidth of all parallel cables together. This assumes that routing spreads traffic evenly.
Bandwidths are per direction; links are full duplex.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.place.hosts.hostlist import by_numbers
from torusrun.orchestrator.place.hosts.same_host import same_host

UPLINK_S = 1e-6  # latency of every uplink on a message's way, added to the network's latency [from memory]


@dataclass(frozen=True)
class Link:
    """A cable, or a bundle of them, in one direction."""

    bandwidth_bytes_per_s: float
    latency_s: float = 0.0

    def slowed(self, share: float) -> Link:
        """The same link with `share` of its bandwidth."""
        return Link(self.bandwidth_bytes_per_s * share, self.latency_s)


@dataclass(frozen=True)
class Nic:
    """A network adapter, and the GPUs near it."""

    name: str
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class NodeType:
    """The hardware of every host of a cluster, without faults."""

    gpus: int
    nics: tuple[Nic, ...]
    inter_node: Link  # all its adapters together
    intra_node: Link  # from one GPU to another: NVLink, or memory
    gpu_cores: tuple[tuple[int, ...], ...] = ()  # the cores beside each GPU; empty if unknown
    compute_capability: int = 80  # of the GPUs, 70 for sm_70; 80 if unknown


@dataclass(frozen=True)
class Switch:
    """A switch, and its uplink to its parent; the top of the tree has neither."""

    name: str
    parent: str | None = None
    uplink: Link | None = None


@dataclass(frozen=True)
class Host:
    """A node: its name, its leaf switch, and its own link (slower if an adapter is dead)."""

    name: str
    leaf: str
    network: Link
    gpus: int  # that work


@dataclass(frozen=True)
class Cluster:
    """Hosts in order and the switches above them. Raises SiteError if the switches are not a tree."""

    node: NodeType
    hosts: tuple[Host, ...]
    switches: tuple[Switch, ...]
    source: str = field(default="", compare=False)
    nvlink: bool = False  # whether the hosts of a leaf are one NVLink domain

    def __post_init__(self) -> None:
        for host in self.hosts:
            self.path(host.leaf)

    @cached_property
    def switch(self) -> Mapping[str, Switch]:
        return {switch.name: switch for switch in self.switches}

    @cached_property
    def host(self) -> Mapping[str, Host]:
        return {host.name: host for host in self.hosts}

    def path(self, leaf: str) -> tuple[Switch, ...]:
        """The switches from a leaf to the top."""
        switches: dict[str, Switch] = {}
        name: str | None = leaf
        while name is not None:
            if name in switches:
                raise SiteError(f"the switches of {self.source or 'the topology'} form a cycle at {name!r}")
            if name not in self.switch:
                raise SiteError(f"{self.source or 'the topology'} has no switch {name!r}")
            switches[name] = self.switch[name]
            name = switches[name].parent
        return tuple(switches.values())

    def in_order(self, names: Sequence[str]) -> tuple[Host, ...]:
        """Each of the hosts once, by name. Raises SiteError as `only` does."""
        return self.only(sorted({*names}, key=by_numbers))

    def only(self, names: Sequence[str]) -> tuple[Host, ...]:
        """The hosts of these names, in that order; a domain that only one side has is ignored.

        Raises SiteError with the names that the topology lacks.
        """
        short = {name.partition(".")[0]: host for name, host in self.host.items()}
        near = {name: short.get(name.partition(".")[0]) for name in names}
        near = {name: host if host and same_host(name, host.name) else None for name, host in near.items()}
        hosts = [self.host.get(name) or near[name] for name in names]
        missing = [name for name, host in zip(names, hosts, strict=True) if host is None]
        if missing:
            raise SiteError(
                f"{self.source or 'the topology'} lacks {len(missing)} of {len(names)} hosts: "
                f"{', '.join(missing[:5])}{', ...' if len(missing) > 5 else ''}"
            )
        return tuple(host for host in hosts if host is not None)


@dataclass(frozen=True)
class Tree:
    """A topology: the hosts of every leaf switch, and the parent of every switch below another."""

    leaves: Mapping[str, Sequence[str]]
    parents: Mapping[str, str] = field(default_factory=dict)


def cluster_of(
    tree: Tree, node: NodeType, uplink_share: float, source: str, slow: Mapping[str, float] = MappingProxyType({})
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
    """The top switch; if several switches have no parent, a new switch above them."""
    tops = [name for name in dict.fromkeys([*tree.leaves, *tree.parents.values()]) if name not in tree.parents]
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


def racks(hosts: Sequence[str], pattern: str, rack_nodes: int | None, first: int = 1) -> Tree:
    """Hosts g0001 ... with 34 to a rack: g0034 is the last of rack 1.

    A group 'rack' in `pattern` names the rack itself. Racks are in the order of their numbers or, if named, of their
    names. Raises SiteError for a name that does not fit the pattern.
    """
    compiled = _compiled(pattern)
    below: dict[tuple[int, str], list[str]] = {}
    for host in hosts:
        below.setdefault(_rack(host, compiled, rack_nodes, first), []).append(host)
    return Tree({name: names for (_, name), names in sorted(below.items())})


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise SiteError(f"topology.pattern {pattern!r} is not a regular expression: {error}") from None
    if not {"rack", "number"} & set(compiled.groupindex):
        raise SiteError(f"topology.pattern {pattern!r} has neither a group (?P<number>...) nor (?P<rack>...)")
    return compiled


def _rack(host: str, pattern: re.Pattern[str], rack_nodes: int | None, first: int) -> tuple[int, str]:
    match = pattern.fullmatch(host)
    if not match:
        raise SiteError(f"the host {host!r} does not match topology.pattern {pattern.pattern!r}")
    groups = match.groupdict()
    if groups.get("rack"):
        return 0, str(groups["rack"])
    number = groups.get("number") or ""
    if rack_nodes is None or not number.isdigit() or int(number) < first:
        raise SiteError(
            f"the rack of {host!r} is unknown: its number is {number!r}, topology.first is {first}, "
            f"topology.rack_nodes is {rack_nodes}"
        )
    rack = (int(number) - first) // rack_nodes + 1
    return rack, f"rack{rack}"
