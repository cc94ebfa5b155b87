"""A cluster as plain values: nodes with their adapters, and a tree of switches above them.

A tree is enough to compute the bytes on each bundle of cables. The spine switches of a fat tree become one switch,
whose uplinks have the bandwidth of all parallel cables together. This assumes that routing spreads traffic evenly.
Bandwidths are per direction; links are full duplex.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.place.hosts.hostlist import by_numbers
from torusrun.orchestrator.place.hosts.same_host import same_host


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
    gpus: int  # working ones


@dataclass(frozen=True)
class Cluster:
    """Hosts in order and the switches above them. Raises SiteError if the switches are not a tree."""

    node: NodeType
    hosts: tuple[Host, ...]
    switches: tuple[Switch, ...]
    source: str = field(default="", compare=False)

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
        found: dict[str, Switch] = {}
        name: str | None = leaf
        while name is not None:
            if name in found:
                raise SiteError(f"the switches of {self.source or 'the topology'} form a cycle at {name!r}")
            if name not in self.switch:
                raise SiteError(f"{self.source or 'the topology'} has no switch {name!r}")
            found[name] = self.switch[name]
            name = found[name].parent
        return tuple(found.values())

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
        found = [self.host.get(name) or near[name] for name in names]
        missing = [name for name, host in zip(names, found, strict=True) if host is None]
        if missing:
            raise SiteError(
                f"{self.source or 'the topology'} lacks {len(missing)} of {len(names)} hosts: "
                f"{', '.join(missing[:5])}{', ...' if len(missing) > 5 else ''}"
            )
        return tuple(host for host in found if host is not None)
