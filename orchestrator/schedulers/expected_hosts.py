"""The hosts that a job can expect of a site: before its allocation is known, or as its user names them."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.base.errors import SiteError
from orchestrator.network.hosts.model import Cluster
from orchestrator.network.hosts.tree import Tree, cluster_of
from orchestrator.schedulers.topology import node_type, of_tree, tree_of
from orchestrator.spec.site import Site
from training.counted import counted


@dataclass(frozen=True)
class ExpectedHosts:
    """Names of hosts, the cluster that has them, and the assumption about them in words."""

    names: tuple[str, ...]
    cluster: Cluster
    assumed: str


def on_one_switch(site: Site, names: tuple[str, ...], why: str) -> ExpectedHosts:
    """These hosts below a single switch; `why` says why their switches are not known."""
    found = cluster_of(Tree({"switch": names}), node_type(site.node), 1.0, "one switch")
    return ExpectedHosts(names, found, f"on hosts below one switch, since {why}")


def expected(site: Site, nodes: int) -> ExpectedHosts:
    """`nodes` hosts of the largest racks in the site's topology; below one switch if it has no racks.

    Queries the topology's source once.
    """
    made_up = tuple(f"<host {number}>" for number in range(1, nodes + 1))
    topology = site.topology
    if topology is None:
        return on_one_switch(site, made_up, "the site has no topology")
    if topology.by_name:
        size = topology.rack_nodes
        if not size:
            return on_one_switch(site, made_up, "the names of hosts tell their rack, but not how large racks are")
        racks = {f"<rack {i // size + 1}>": made_up[i : i + size] for i in range(0, nodes, size)}
        return ExpectedHosts(made_up, of_tree(Tree(racks), site, {}, {}), "on whole racks of the site")
    try:
        tree = tree_of(topology, (), site.command_timeout_s)
        found = of_tree(tree, site, topology.slow, topology.dead_gpus)
    except SiteError as error:
        return on_one_switch(site, made_up, str(error))
    largest = sorted(tree.leaves.values(), key=len, reverse=True)
    broken = {*topology.slow, *topology.dead_gpus}
    sound = ([name for name in leaf if name not in broken] for leaf in largest)
    segment = topology.segment(nodes)
    names = tuple(name for leaf in sound for name in (leaf[:segment] if segment else leaf))[:nodes]
    if len(names) < nodes:
        return on_one_switch(site, made_up, f"the topology knows {counted(len(names), 'sound host')} only")
    assumed = f"on {counted(nodes // segment, 'block')} of the site" if segment else "on the largest racks of the site"
    return ExpectedHosts(names, found, assumed)
