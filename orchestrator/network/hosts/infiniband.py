"""The switches of an InfiniBand fabric, from the output of `ibnetdiscover`."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.network.hosts.hostlist import by_numbers
from torusrun.orchestrator.network.hosts.tree import Tree

SWITCH = re.compile(r'^Switch\s+\d+\s+"S-(\w+)"\s*#\s*"[^"]*".*\n((?:^\[.*\n?)*)', re.MULTILINE)  # GUID, ports
LINE = re.compile(r'^\[\d+\](?:\(\w+\))?\s+"([SHR])-\w+"\[\d+\](?:\(\w+\))?\s*(?:#\s*(.*))?$')
AGENT = "Aggregation Node"  # a switch's built-in management port, which looks like a host


def tree(text: str) -> Tree:
    """The hosts of every leaf switch in the output of `ibnetdiscover`, and the switch above.

    A host's leaf is the switch with most of its ports. Switches without hosts are merged into one above the leaves,
    since each of them leads everywhere. Raises SiteError if the text is damaged or has no hosts.
    """
    ports_of: dict[str, Counter[str]] = defaultdict(Counter)
    for guid, lines in SWITCH.findall(text):
        for line in lines.splitlines():
            match = LINE.match(line)
            if not match:
                raise SiteError(f"the output of ibnetdiscover is damaged at switch {guid}: {line!r}")
            kind, remark = match.groups(default="")
            if kind == "H":
                host = _host(remark, line)
                if AGENT not in remark:
                    ports_of[host][guid] += 1
    if not ports_of:
        raise SiteError(f"this is not the output of ibnetdiscover, or it has no hosts: {text.strip()[:80]!r}")
    leaves: dict[str, list[str]] = {}
    for host in sorted(ports_of, key=by_numbers):
        leaf = max(ports_of[host], key=lambda guid: (ports_of[host][guid], guid))
        leaves.setdefault(leaf, []).append(host)
    parents = {leaf: "(spines)" for leaf in leaves} if len(leaves) > 1 else {}
    return Tree(leaves, parents)


def _host(remark: str, line: str) -> str:
    match = re.match(r'"(\S+)[^"]*"', remark)
    if not match:
        raise SiteError(f"ibnetdiscover names no host in {line!r}")
    return match[1]
