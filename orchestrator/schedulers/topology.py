"""The cluster of a site, with the switches from the source that the site names, and the hosts that a job can expect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.keys.paths import expanded, read_bytes
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.keys.topology import Topology
from torusrun.orchestrator.place.hosts import infiniband, model
from torusrun.orchestrator.place.hosts.hostlist import expand
from torusrun.orchestrator.place.hosts.model import Cluster, Link, Tree, cluster_of
from torusrun.orchestrator.place.placement.binding import node_type
from torusrun.orchestrator.schedulers.client import asking
from torusrun.training.counted import counted

LARGEST_BYTES = 100_000_000  # of a file that holds a topology
DESCRIBED = ("names", "switches", "infiniband")  # sources that are the site's own files


def cluster(site: Site, hosts: Sequence[str]) -> Cluster | None:
    """The cluster of `site`, or None if the site has no topology.

    `hosts` are those that are needed: a source that reads only names knows no others. Raises SiteError if the topology
    is not available.
    """
    if not site.topology:
        return None
    wanted, slow = dict.fromkeys(hosts), site.topology.slow
    if site.topology.by_name:  # the tree has only these hosts, and the faults of others do not matter
        slow = {name: share for name, share in slow.items() if name in wanted}
    return of_tree(tree_of(site.topology, list(wanted), site.command_timeout_s), site, slow)


def of_tree(tree: Tree, site: Site, slow: Mapping[str, float]) -> Cluster:
    """The cluster of a site that has a topology, with the hosts and switches in `tree`."""
    assert site.topology
    share, source = site.topology.uplink, f"the topology ({site.topology.source})"
    made = replace(cluster_of(tree, node_type(site.node), share, source, slow), nvlink=site.topology.nvlink)
    if not (site.topology.by_name and site.topology.rack_nodes):
        return made
    # These may be a few hosts of a rack, whose uplink has room for all of its nodes.
    whole = site.node.inter_node_bytes_per_s * site.topology.rack_nodes * share
    slow = site.topology.slow  # of racks, too
    return replace(
        made,
        switches=tuple(
            replace(s, uplink=Link(whole * slow.get(s.name, 1.0), s.uplink.latency_s)) if s.uplink else s
            for s in made.switches
        ),
    )


def tree_of(topology: Topology, hosts: Sequence[str], timeout_s: float) -> Tree:
    """The tree of the source; from a source that reads only names of hosts, it has only `hosts`. Raises SiteError."""
    if topology.by_name:
        return model.racks(hosts, topology.pattern, topology.rack_nodes, topology.first)
    if topology.source == "switches":
        return Tree({name: expand(text) for name, text in topology.switches.items()})
    if topology.source == "infiniband":
        if not topology.file:
            raise SiteError("topology.source infiniband needs topology.file: save the output of ibnetdiscover in it")
        return infiniband.tree(_kept(topology.file))
    source = schedulers.get(topology.source).cluster.switches
    if source is None:
        raise SiteError(f"topology.source: {topology.source} reports no switches")
    attribute = topology.attribute or source.attribute
    text = _kept(topology.file) if topology.file else source.query(asking(timeout_s), attribute)
    return source.tree(text, attribute)


def _kept(file: str) -> str:
    path = expanded(file)
    try:
        return read_bytes(path, LARGEST_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise SiteError(f"topology.file {path} cannot be read: {error}") from None


@dataclass(frozen=True)
class ExpectedHosts:
    """Names of hosts, the cluster that has them, and the assumption about them in words."""

    names: tuple[str, ...]
    cluster: Cluster
    assumed: str


def on_one_switch(site: Site, names: tuple[str, ...], why: str) -> ExpectedHosts:
    """These hosts below a single switch; `why` says why their switches are not known."""
    made = cluster_of(Tree({"switch": names}), node_type(site.node), 1.0, "one switch")
    return ExpectedHosts(names, made, f"on hosts below one switch, since {why}")


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
        return ExpectedHosts(made_up, of_tree(Tree(racks), site, {}), assumed)
    try:
        tree = tree_of(topology, (), site.command_timeout_s)
        made = of_tree(tree, site, topology.slow)
    except SiteError as error:
        return on_one_switch(site, made_up, str(error))
    largest = sorted(tree.leaves.values(), key=len, reverse=True)
    sound = ([name for name in leaf if name not in topology.slow] for leaf in largest)
    names = tuple(chain.from_iterable(sound))[:nodes]
    if len(names) < nodes:
        return on_one_switch(site, made_up, f"the topology knows {counted(len(names), 'sound host')} only")
    return ExpectedHosts(names, made, "on the largest racks of the site")
