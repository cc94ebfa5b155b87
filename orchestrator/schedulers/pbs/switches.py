"""The switches of PBS's hosts: each is named by a resource of its vnodes."""

from __future__ import annotations

from collections.abc import Mapping

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.place.hosts.model import Tree
from torusrun.orchestrator.place.hosts.same_host import same_host
from torusrun.orchestrator.schedulers.interface import SwitchSource
from torusrun.orchestrator.schedulers.pbs.facts import NODES, SWITCH, host_of, resources_of, vnodes_in


def tree(text: str, resource: str) -> Tree:
    """The hosts by the switches in their resource `resource`, for example `switch`.

    Raises SiteError if no host has it, naming the existing resources, if the text is something else, or if switches
    share only some of their hosts.
    """
    below: dict[str, dict[str, None]] = {}  # the hosts below each switch
    others: set[str] = set()
    listed = vnodes_in(text)
    for name, vnode in listed.items():
        known = resources_of(vnode)
        for switch in _switches(known.get(resource.lower(), ""), host_of(name, vnode)):
            below.setdefault(switch, {})[host_of(name, vnode)] = None
        others |= set(known)
    if not below:
        has = f"; they have {', '.join(sorted(others))}" if others else ""
        raise SiteError(f"none of the {len(listed)} nodes that pbsnodes lists has a resource {resource!r}{has}")
    return _nested(below)


def _switches(value: str, own: str) -> list[str]:
    """The switches in a resource, the nearest first. It may be a list, which often begins with the host itself."""
    words = [word.strip().strip("'\"") for word in value.split(",")]
    return [word for word in words if word and not same_host(word, own)]


def _nested(below: Mapping[str, Mapping[str, None]]) -> Tree:
    """The tree: each switch is below the smallest switch that has all of its hosts. Raises SiteError without a tree."""
    parents: dict[str, str] = {}
    leaves: dict[str, list[str]] = {}
    top: dict[str, str] = {}  # the highest switch so far above each host
    for switch, hosts in sorted(below.items(), key=lambda item: len(item[1])):
        inner = dict.fromkeys(top[host] for host in hosts if host in top)
        if partly := next((name for name in inner if not below[name].keys() <= hosts.keys()), None):
            raise SiteError(f"pbsnodes lists the switches {partly} and {switch}, which share only some of their hosts")
        parents |= dict.fromkeys(inner, switch)
        if own := [host for host in hosts if host not in top]:
            leaves[switch] = own
        top |= dict.fromkeys(hosts, switch)
    return Tree(dict(sorted(leaves.items())), parents)


SWITCHES = SwitchSource(tree, lambda ask, _: ask(NODES), SWITCH)
