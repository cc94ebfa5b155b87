"""Reads Slurm's tree of switches, from `topology.conf` or the output of `scontrol show topology`.

A line is `SwitchName=s0 Nodes=n[0-3]` or `SwitchName=s9 Switches=s[0-1]`; scontrol adds Level and LinkSpeed. A file
may have comments, and lines that continue after a backslash (slurm-topology.conf(5), Slurm 22.05).
"""

from __future__ import annotations

import re

from orchestrator.base.errors import SiteError
from orchestrator.network.hosts.hostlist import expand
from orchestrator.network.hosts.tree import Tree
from orchestrator.schedulers.traits import SwitchSource

COMMAND = ("scontrol", "show", "topology")


def tree(text: str) -> Tree:
    """The switches in `text`. Raises SiteError that names a wrong line, or a switch that is not described.

    If scontrol lists all nodes below a higher switch, they are ignored: `Switches` is enough.
    """
    leaves: dict[str, list[str]] = {}
    parents: dict[str, str] = {}
    for line in _lines(text):
        words = {key.lower(): value for key, value in named(line).items()}
        name, nodes, below = (words.get(key) for key in ("switchname", "nodes", "switches"))
        if not name or not (nodes or below):
            raise SiteError(f"this is not a line of Slurm's tree topology: {line[:200]!r}")
        if below and below != "(null)":
            for child in expand(below):
                parents[child] = name
        else:
            leaves[name] = expand(nodes or "")
    if missing := [name for name in parents if name not in leaves and name not in parents.values()]:
        raise SiteError(f"Slurm's topology is cut off: it does not describe the switches {', '.join(missing[:5])}")
    if not leaves:
        raise SiteError("Slurm's topology has no switches; is TopologyPlugin=topology/tree set?")
    return Tree(leaves, parents)


def named(line: str) -> dict[str, str]:
    """The words of the form NAME=VALUE in a line that scontrol printed."""
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def _lines(text: str) -> list[str]:
    joined = re.sub(r"\\\s*\n\s*", " ", text)
    lines = (line.partition("#")[0].strip() for line in joined.splitlines())
    return [line for line in lines if line]


SWITCHES = SwitchSource(lambda text, _: tree(text), lambda ask, _: ask(COMMAND))
