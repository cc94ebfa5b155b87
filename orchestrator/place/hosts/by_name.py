"""Racks from the names of hosts: the number of a node gives its rack."""

from __future__ import annotations

import re
from collections.abc import Sequence

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.place.hosts.tree import Tree


def racks(hosts: Sequence[str], pattern: str, rack_nodes: int | None, first: int = 1) -> Tree:
    """Hosts g0001 ... with 34 to a rack: g0034 is the last of rack 1.

    A group 'rack' in `pattern` names the rack itself. Racks are in the order of their numbers or, if named, of their
    names. Raises SiteError for a name that does not fit the pattern.
    """
    compiled = _compiled(pattern)
    found: dict[tuple[int, str], list[str]] = {}
    for host in hosts:
        found.setdefault(_rack(host, compiled, rack_nodes, first), []).append(host)
    return Tree({name: names for (_, name), names in sorted(found.items())})


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise SiteError(f"topology.pattern {pattern!r} is not a regular expression: {error}") from None
    if not {"rack", "number"} & set(compiled.groupindex):
        raise SiteError(f"topology.pattern {pattern!r} has neither a group (?P<number>...) nor (?P<rack>...)")
    return compiled


def _rack(host: str, pattern: re.Pattern[str], rack_nodes: int | None, first: int) -> tuple[int, str]:
    match = pattern.fullmatch(host)
    if not match:
        raise SiteError(f"the host {host!r} does not match topology.pattern {pattern.pattern!r}")
    groups = match.groupdict()
    if groups.get("rack"):
        return 0, str(groups["rack"])
    number = groups.get("number") or ""
    if rack_nodes is None or not number.isdigit() or int(number) < first:
        raise SiteError(
            f"the rack of {host!r} is unknown: its number is {number!r}, topology.first is {first}, "
            f"topology.rack_nodes is {rack_nodes}"
        )
    rack = (int(number) - first) // rack_nodes + 1
    return rack, f"rack{rack}"
