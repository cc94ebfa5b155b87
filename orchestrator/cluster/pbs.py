"""PBS: the switch of every node as a resource of it, from `pbsnodes -a` as text or as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from orchestrator.cluster.tree import Tree
from orchestrator.errors import SiteError

COMMAND = ("pbsnodes", "-a", "-F", "json")


def tree(text: str, resource: str) -> Tree:
    """The nodes by the value of their resource `resource` (`resources_available.switch`, say).

    Raises SiteError when no node has it, naming the resources there are, or when the text is neither form.
    """
    leaves: dict[str, list[str]] = {}
    others: set[str] = set()
    count = 0
    for host, resources in _nodes(text):
        count += 1
        if resource in resources:
            leaves.setdefault(resources[resource], []).append(host)
        others |= set(resources)
    if not leaves:
        known = f"; they have {', '.join(sorted(others))}" if others else ""
        raise SiteError(f"none of the {count} nodes in what pbsnodes says has a resource {resource!r}{known}")
    return Tree(dict(sorted(leaves.items())))


def _nodes(text: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """(host, its resources); for a vnode the host is its resource `host` where it has one."""
    for name, resources in _from_json(text) if text.lstrip().startswith("{") else _from_text(text):
        yield resources.get("host", name), resources


def _from_json(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    try:
        nodes = json.loads(text)["nodes"]
        for name, node in nodes.items():
            yield name, {key: str(value) for key, value in node["resources_available"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SiteError(f"this is not what pbsnodes -a -F json says: {error!r}") from None


def _from_text(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Nodes are unindented names, followed by indented 'key = value' lines."""
    name, resources = None, dict[str, str]()
    for line in text.splitlines():
        if re.match(r"\S", line):
            if name:
                yield name, resources
            name, resources = line.strip(), {}
        elif match := re.match(r"\s+resources_available\.(\w+) = (.*)", line):
            resources[match[1]] = match[2].strip()
    if not name or re.search(r"\s", name):
        raise SiteError(f"this is not what pbsnodes -a says: {text.strip()[:80]!r}")
    yield name, resources
