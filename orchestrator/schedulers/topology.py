"""The cluster of a site, with the topology from the source that the site names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.network.hosts.hostlist import numbers
from orchestrator.network.hosts.model import Cluster, Link, Nic, NodeType
from orchestrator.network.hosts.tree import Faults, Tree, cluster_of
from orchestrator.schedulers.switches import tree_of
from orchestrator.spec.site import Node, Site
from orchestrator.spec.topology import Topology


def cluster(site: Site, hosts: Sequence[str]) -> Cluster | None:
    """The cluster of `site`, or None if the site has no topology.

    `hosts` are those that are needed: a source that reads only names knows no others. Raises SiteError if the topology
    is not available.
    """
    if not site.topology:
        return None
    wanted = dict.fromkeys(hosts)
    faults = Faults(
        {name: share for name, share in site.topology.slow.items() if _matters(name, site.topology, wanted)},
        {name: count for name, count in site.topology.dead_gpus.items() if _matters(name, site.topology, wanted)},
    )
    return of_tree(tree_of(site.topology, list(wanted), site.command_timeout_s), site, faults)


def of_tree(tree: Tree, site: Site, faults: Faults) -> Cluster:
    """The cluster of a site that has a topology, with the hosts and switches in `tree`."""
    assert site.topology
    share = site.topology.uplink
    made = cluster_of(tree, node_type(site.node), share, faults, f"the topology ({site.topology.source})")
    if not (site.topology.by_name and site.topology.rack_nodes):
        return made
    # These may be a few hosts of a rack, whose uplink has room for all of its nodes.
    whole = site.node.inter_node_bytes_per_s * site.topology.rack_nodes * share
    slow = site.topology.slow
    return replace(
        made,
        switches=tuple(
            replace(s, uplink=Link(whole * slow.get(s.name, 1.0), s.uplink.latency_s)) if s.uplink else s
            for s in made.switches
        ),
    )


def _matters(name: str, topology: Topology, wanted: dict[str, None]) -> bool:
    """Whether a host's faults count: if only names of hosts are read, those of hosts outside the allocation do not."""
    return not topology.by_name or name in wanted


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
    )
