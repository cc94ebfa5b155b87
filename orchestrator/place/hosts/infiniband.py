"""The switches of an InfiniBand fabric, from the output of `ibnetdiscover`."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.place.hosts.hostlist import by_numbers
from torusrun.orchestrator.place.hosts.model import Tree

SWITCH = re.compile(r'^Switch\s+\d+\s+"S-(\w+)".*\n((?:^\[.*\n?)*)', re.MULTILINE)  # GUID, ports
ADAPTER = re.compile(r'^Ca\s+\d+\s+"(H-\w+)"\s*(?:#\s*(.*))?\n((?:^\[.*\n?)*)', re.MULTILINE)
LINE = re.compile(r'^\[\d+\](?:\(\w+\))?\s+"([SHR])-(\w+)"\[\d+\](?:\(\w+\))?\s*(?:#\s*(.*))?$')
# The descriptions of adapters that nobody named, as in MT4123 ConnectX6 Mellanox Technologies.
MODEL = re.compile(r'"(MT\d+ |[^"]*(Technologies|ConnectX)|(Mellanox|NVIDIA|Intel|QLogic|Voltaire|InfiniBand)\b)', re.I)
AGENT = "Aggregation Node"  # a switch's built-in management port, which looks like a host


def tree(text: str) -> Tree:
    """The hosts of every leaf switch in the output of `ibnetdiscover`, and the switch above.

    Switches are known by their GUIDs, and so are adapters that name no host: each counts as a host. A host's leaf is
    the switch with most of its ports. Switches without hosts are merged into a switch above the leaves, since each of
    them leads everywhere. Raises SiteError if the text is damaged or has no hosts.
    """
    ports_of: dict[str, Counter[str]] = defaultdict(Counter)
    described = dict(SWITCH.findall(text))
    for guid, lines in described.items():
        for kind, other, remark in _ports(lines, f"switch {guid}"):
            if kind == "H" and AGENT not in remark:
                ports_of[_host(remark, f"H-{other}")][guid] += 1
    for adapter, remark, lines in ADAPTER.findall(text):  # a part of the output may lack the switch
        for kind, guid, _ in _ports(lines, f"adapter {adapter}"):
            if kind == "S" and guid not in described and AGENT not in remark:
                ports_of[_host(remark, adapter)][guid] += 1
    if not ports_of:
        raise SiteError(f"this is not the output of ibnetdiscover, or it has no hosts: {text.strip()[:80]!r}")
    leaves: dict[str, list[str]] = {}
    for host in sorted(ports_of, key=by_numbers):
        leaf = max(ports_of[host], key=lambda guid: (ports_of[host][guid], guid))
        leaves.setdefault(leaf, []).append(host)
    return Tree(leaves, dict.fromkeys(leaves, "(spines)") if len(leaves) > 1 else {})


def _ports(lines: str, of: str) -> Iterator[tuple[str, str, str]]:
    """(kind, GUID, remark) of the other end of each port. Raises SiteError for a damaged line."""
    for line in lines.splitlines():
        match = LINE.match(line)
        if not match:
            raise SiteError(f"the output of ibnetdiscover is damaged at {of}: {line!r}")
        kind, guid, remark = match.groups(default="")
        yield kind, guid, remark


def _host(remark: str, adapter: str) -> str:
    """The host in the description of an adapter; the adapter, which has its GUID, if that names none."""
    match = re.match(r'"([^\s"]+)[^"]*"', remark)
    return match[1] if match and not MODEL.match(remark) else adapter
