"""The tree of switches above a site's nodes, from the source that the site names."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator import schedulers
from orchestrator.base.errors import SiteError
from orchestrator.network.hosts import by_name, infiniband
from orchestrator.network.hosts.hostlist import expand
from orchestrator.network.hosts.tree import Tree
from orchestrator.schedulers.client import asking
from orchestrator.schedulers.cluster_facts import Ask
from orchestrator.schedulers.traits import SwitchSource
from orchestrator.spec.paths import expanded, read_bytes
from orchestrator.spec.topology import Topology

LARGEST_BYTES = 100_000_000  # of a file that holds a topology


def _by_name(topology: Topology, hosts: Sequence[str]) -> Tree:
    return by_name.racks(hosts, topology.pattern, topology.rack_nodes, topology.first)


def _listed(topology: Topology, hosts: Sequence[str]) -> Tree:
    return Tree({name: expand(text) for name, text in topology.switches.items()})


def _unasked(ask: Ask, attribute: str) -> str:
    raise SiteError("topology.source infiniband needs topology.file: save the output of ibnetdiscover in it")


DESCRIBED = {"names": _by_name, "switches": _listed}  # by the site's own file
FILES = {"infiniband": SwitchSource(lambda text, _: infiniband.tree(text), _unasked)}


def tree_of(topology: Topology, hosts: Sequence[str], timeout_s: float) -> Tree:
    """The tree of the source; from a source that reads only names of hosts, it has only `hosts`. Raises SiteError."""
    if topology.source in DESCRIBED:
        return DESCRIBED[topology.source](topology, hosts)
    source = FILES.get(topology.source) or schedulers.get(topology.source).cluster.switches
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
