"""Which bad hosts a request leaves out, and which it must ask for all the same. A pure function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torusrun.orchestrator.place.hosts.same_host import same_host
from torusrun.training.counted import counted

if TYPE_CHECKING:  # `status` needs no other part
    from torusrun.orchestrator.run.bad_nodes.bad_node import BlamedNode

LONGEST = 1500  # characters of all excluded names together; a directive of Grid Engine may have 2,000 bytes
SHOWN = 4


@dataclass(frozen=True)
class LeftOutNodes:
    """The bad hosts of a request, with why they are bad: those `hosts` that it leaves out, and those that it `keeps`.

    `why_kept` says why it leaves out no more; '' if it keeps none.
    """

    hosts: Mapping[str, str] = field(default_factory=dict)
    keeps: Mapping[str, str] = field(default_factory=dict)
    why_kept: str = ""

    @property
    def lines(self) -> list[str]:
        """A short line for each kind; [] without bad hosts."""
        out = [f"left out: {listed(self.hosts)}"] if self.hosts else []
        kept = [f"bad, but still requested: {listed(self.keeps)}: {self.why_kept}"] if self.keeps else []
        return [*out, *kept]


def listed(hosts: Mapping[str, str]) -> str:
    """'n3 (lost twice), n7 (hung twice)', at most four of them."""
    more = f" and {len(hosts) - SHOWN} more (`torusrun nodes` lists them)" if len(hosts) > SHOWN else ""
    return ", ".join([f"{host} ({why})" for host, why in hosts.items()][:SHOWN]) + more


def choose(
    bad: Sequence[BlamedNode],
    nodes: int,
    *,
    excluded: Sequence[str] = (),
    cluster: Sequence[str] = (),
    cannot: str = "",
) -> LeftOutNodes:
    """What a request for this number of nodes leaves out of the `bad` hosts, the most certain of which come first.

    The user has `excluded` hosts by name. `cluster` are the hosts that the scheduler has for the request, by its own
    names; () if they are unknown. A bad host that it does not have is in neither list: some schedulers refuse its name.
    As many hosts as the request takes always remain. `cannot` is why the scheduler can leave out none; '' if it can.
    """
    new = [node for node in bad if not any(same_host(node.host, host) for host in excluded)]
    named = _named(new, cluster) if cluster else {node.host: node.why for node in new}
    if cannot:
        return LeftOutNodes(keeps=named, why_kept=cannot) if named else LeftOutNodes()
    out = sum(any(same_host(host, other) for other in excluded) for host in cluster)
    room = max(len(cluster) - out - nodes, 0) if cluster else len(named)
    fitting = _fitting(list(named), LONGEST - sum(len(host) + 1 for host in excluded))
    few = f"the run takes {counted(nodes, 'node')}, and the scheduler has {len(cluster) - out}"
    kept = list(named)[min(room, fitting) :]
    why = "" if not kept else few if room <= fitting else "a request cannot name more hosts"
    return LeftOutNodes(
        {host: why for host, why in named.items() if host not in kept},
        {host: named[host] for host in kept},
        why,
    )


def _named(bad: Sequence[BlamedNode], cluster: Sequence[str]) -> dict[str, str]:
    """The bad hosts by their names in the cluster, with why each is bad, in order."""
    known = {node.host: next((host for host in cluster if same_host(host, node.host)), None) for node in bad}
    return {host: node.why for node in bad if (host := known[node.host])}


def _fitting(names: Sequence[str], longest: int) -> int:
    """How many of the names, in order, have at most `longest` characters together, with a character between them."""
    length = 0
    for number, name in enumerate(names):
        length += len(name) + 1
        if length > longest:
            return number
    return len(names)
