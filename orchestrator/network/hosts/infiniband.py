"""The switches of an InfiniBand fabric, from the output of `ibnetdiscover`."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.base.errors import SiteError
from orchestrator.network.hosts.tree import Tree

LINE = re.compile(r'^\[(\d+)\](?:\(\w+\))?\s+"([SHR])-(\w+)"\[(\d+)\](?:\(\w+\))?\s*(?:#\s*(.*))?$')


@dataclass(frozen=True)
class InfinibandFabric:
    """The hosts of every leaf switch, the switch above it, and the number of cables from one switch to another."""

    tree: Tree
    cables: Mapping[tuple[str, str], int]
    names: Mapping[str, str]  # of the switches, by GUID


def fabric(text: str) -> InfinibandFabric:
    """The fabric in the output of `ibnetdiscover`.

    A host's leaf is the switch with most of its ports. Switches without hosts are merged into one above the leaves,
    since each of them leads everywhere. Raises SiteError if the text is damaged or has no hosts.
    """
    cables: Counter[tuple[str, str]] = Counter()
    ports_of: dict[str, Counter[str]] = defaultdict(Counter)
    names: dict[str, str] = {}
    for guid, title, lines in _switches(text):
        names[guid] = title
        for line in lines:
            match = LINE.match(line)
            if not match:
                raise SiteError(f"what ibnetdiscover says of switch {guid} is damaged: {line!r}")
            _, kind, other, _, remark = match.groups()
            if kind == "H":
                host = _host(remark or "", line)
                if not _is_switch_agent(remark or ""):
                    ports_of[host][guid] += 1
            elif kind == "S":
                cables[guid, other] += 1
    if not ports_of:
        raise SiteError(f"this is not what ibnetdiscover says, or it has no hosts: {text.strip()[:80]!r}")
    leaves: dict[str, list[str]] = {}
    for host in sorted(ports_of, key=_natural):
        leaf = max(ports_of[host], key=lambda guid: (ports_of[host][guid], guid))
        leaves.setdefault(leaf, []).append(host)
    parents = {leaf: "(spines)" for leaf in leaves} if len(leaves) > 1 else {}
    return InfinibandFabric(Tree(leaves, parents), dict(cables), names)


def _switches(text: str) -> list[tuple[str, str, list[str]]]:
    """The (GUID, name, lines of ports) of every switch."""
    blocks = re.findall(r'^Switch\s+\d+\s+"S-(\w+)"\s*#\s*"([^"]*)".*\n((?:^\[.*\n?)*)', text, re.MULTILINE)
    return [(guid, title, lines.splitlines()) for guid, title, lines in blocks]


def _host(remark: str, line: str) -> str:
    match = re.match(r'"(\S+)[^"]*"', remark)
    if not match:
        raise SiteError(f"ibnetdiscover names no host in {line!r}")
    return match[1]


def _is_switch_agent(remark: str) -> bool:
    """Whether this is a switch's built-in management port, which looks like a host."""
    return "Aggregation Node" in remark


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part]
