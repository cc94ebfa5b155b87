"""The hosts that a job can expect of a site: before its allocation is known, or as its user names them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.place.hosts.model import Cluster
from torusrun.orchestrator.place.hosts.tree import Tree, cluster_of
from torusrun.orchestrator.schedulers.topology import node_type, of_tree, tree_of
from torusrun.training.counted import counted


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
            return on_one_switch(site, made_up, "the names of hosts contain their rack, but not how large racks are")
        racks = {f"<rack {i // size + 1}>": made_up[i : i + size] for i in range(0, nodes, size)}
        assumed = f"on {counted(len(racks), 'rack')} of {size} nodes, if the site has so many"
        return ExpectedHosts(made_up, of_tree(Tree(racks), site, {}, {}), assumed)
    try:
        tree = tree_of(topology, (), site.command_timeout_s)
        found = of_tree(tree, site, topology.slow, topology.dead_gpus)
    except SiteError as error:
        return on_one_switch(site, made_up, str(error))
    largest = sorted(tree.leaves.values(), key=len, reverse=True)
    broken = {*topology.slow, *topology.dead_gpus}
    sound = ([name for name in leaf if name not in broken] for leaf in largest)
    segment = topology.segment(nodes)
    names = tuple(_in_segments([*sound], segment) if segment else chain.from_iterable(sound))[:nodes]
    if len(names) < nodes:
        known = counted(len(names), "sound host")
        fitting = f" in whole segments of {segment}" if segment else ""
        return on_one_switch(site, made_up, f"the topology knows {known} only{fitting}")
    if segment:
        return ExpectedHosts(names, found, f"on {counted(nodes // segment, 'segment')} in blocks of the site")
    return ExpectedHosts(names, found, "on the largest racks of the site")


def _in_segments(blocks: Sequence[Sequence[str]], segment: int) -> Iterator[str]:
    """The hosts of whole segments: first one of every block, then a second one of those that have room, and so on."""
    for begin in range(0, max(map(len, blocks), default=0), segment):
        for block in blocks:
            if len(block) >= begin + segment:
                yield from block[begin : begin + segment]
