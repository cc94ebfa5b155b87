"""Reads PBS's lists, and the switch of every node, which is a resource of its vnodes.

PBS's JSON is invalid if a value is `nan` or `.5`, so commands request text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.place.hosts.model import Tree
from torusrun.orchestrator.place.hosts.same_host import same_host
from torusrun.orchestrator.schedulers.interface import SwitchSource

COMMAND = ("pbsnodes", "-av")  # without -v it merges the vnodes of a host, and lacks some of their resources
RESOURCE = "resources_available."
SWITCH = "switch"  # the resource that names a node's switch, unless topology.attribute says otherwise


def records(text: str, head: str, indent: str = "    ") -> dict[str, dict[str, str]]:
    """The attributes of all objects in a list of PBS, by name.

    `head` begins the line of a name, and the pattern `indent` that of an attribute; other lines are ignored. A long
    value continues in lines that begin with a tab. The first record of a name, and the first value of an attribute,
    count: a second one is not the server's.
    """
    attribute = re.compile(indent + r"([A-Za-z_][\w.-]*) = (.*)")
    found: dict[str, dict[str, str]] = {}
    attributes: dict[str, str] = {}
    for line in text.replace("\n\t", "").split("\n"):
        if line.startswith(head) and line[:1].strip():
            attributes = {}
            found.setdefault(line.removeprefix(head).strip(), attributes)
        elif match := attribute.fullmatch(line):
            attributes.setdefault(match[1], match[2].strip())
    return found


def vnodes(text: str) -> dict[str, dict[str, str]]:
    """The attributes of every vnode by its name. Raises SiteError if `text` is not output of pbsnodes."""
    listed = {name: values for name, values in records(text, "", " +").items() if values}  # a warning has none
    if not listed:
        raise SiteError(f"this is not the output of `{' '.join(COMMAND)}`: {text.strip()[:80]!r}")
    return listed


def host(name: str, vnode: Mapping[str, str]) -> str:
    """The host of a vnode; several vnodes may share a host."""
    return vnode.get(f"{RESOURCE}host") or vnode.get("Mom") or name


def resources(vnode: Mapping[str, str]) -> dict[str, str]:
    """The resources of a vnode. PBS knows their names without case, so these are in lower case."""
    return {key.removeprefix(RESOURCE).lower(): value for key, value in vnode.items() if key.startswith(RESOURCE)}


def tree(text: str, resource: str) -> Tree:
    """The hosts by the switches in their resource `resource`, for example `switch`.

    Raises SiteError if no host has it, naming the existing resources, if the text is something else, or if switches
    share only some of their hosts.
    """
    below: dict[str, dict[str, None]] = {}  # the hosts below each switch
    others: set[str] = set()
    listed = vnodes(text)
    for name, vnode in listed.items():
        known = resources(vnode)
        for switch in _switches(known.get(resource.lower(), ""), host(name, vnode)):
            below.setdefault(switch, {})[host(name, vnode)] = None
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
    """The tree of switches: each is below the smallest one that has all of its hosts. Raises SiteError without one."""
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


SWITCHES = SwitchSource(tree, lambda ask, _: ask(COMMAND), SWITCH)
