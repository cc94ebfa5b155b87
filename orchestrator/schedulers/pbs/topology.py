"""Reads PBS's lists, and the switch of every node, which is a resource of its vnodes.

PBS's JSON is invalid if a value is `nan` or `.5`, so commands request text. A user's file may have either form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.network.hosts.tree import Tree
from torusrun.orchestrator.schedulers.traits import SwitchSource

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


def vnodes(text: str) -> dict[str, Mapping[str, str]]:
    """The attributes of every vnode by its name. Raises SiteError if `text` is not output of pbsnodes."""
    read = _from_json(text) if text.lstrip().startswith("{") else records(text, "", " +")
    found: dict[str, Mapping[str, str]] = {
        name: values for name, values in read.items() if values
    }  # a warning has none
    if not found:
        raise SiteError(f"this is not the output of `{' '.join(COMMAND)}`: {text.strip()[:80]!r}")
    return found


def host(name: str, vnode: Mapping[str, str]) -> str:
    """The host of a vnode; several vnodes may share a host."""
    return vnode.get(f"{RESOURCE}host") or vnode.get("Mom") or name


def resources(vnode: Mapping[str, str]) -> dict[str, str]:
    return {key.removeprefix(RESOURCE): value for key, value in vnode.items() if key.startswith(RESOURCE)}


def tree(text: str, resource: str) -> Tree:
    """The hosts by the value of their resource `resource`, for example `switch`.

    Raises SiteError if no host has it, naming the existing resources, or if the text has neither form.
    """
    leaves: dict[str, dict[str, None]] = {}
    others: set[str] = set()
    listed = vnodes(text)
    for name, vnode in listed.items():
        known = resources(vnode)
        if resource in known:
            leaves.setdefault(known[resource], {})[host(name, vnode)] = None
        others |= set(known)
    if not leaves:
        has = f"; they have {', '.join(sorted(others))}" if others else ""
        raise SiteError(f"none of the {len(listed)} nodes that pbsnodes lists has a resource {resource!r}{has}")
    return Tree({leaf: list(hosts) for leaf, hosts in sorted(leaves.items())})


def _from_json(text: str) -> dict[str, dict[str, str]]:
    try:
        nodes = json.loads(text)["nodes"].items()
        return {
            name: {RESOURCE + key: str(value) for key, value in node["resources_available"].items()}
            for name, node in nodes
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        command = " ".join(COMMAND)
        raise SiteError(f"this is not JSON of pbsnodes: {error!r}; save what `{command}` prints instead") from None


SWITCHES = SwitchSource(tree, lambda ask, _: ask(COMMAND), SWITCH)
