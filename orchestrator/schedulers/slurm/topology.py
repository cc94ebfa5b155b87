"""Reads the switches that Slurm knows: topology.conf, or the output of `scontrol show topology`.

A line of topology.conf is `SwitchName=s0 Nodes=n[0-3]` or `SwitchName=s9 Switches=s[0-1]`, or names a block, a ring or
a torus in place of a switch. These become leaf switches: the model has no links between single nodes. scontrol adds
Level, LinkSpeed, BlockIndex and others; it prints these lines also if the site has a topology.yaml. A file may have
comments, and lines that continue after a backslash (topology.conf(5), Slurm 22.05 and 26.05).
"""

from __future__ import annotations

import re

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.place.hosts.hostlist import expand
from torusrun.orchestrator.place.hosts.model import Tree
from torusrun.orchestrator.schedulers.cluster_facts import Ask
from torusrun.orchestrator.schedulers.interface import SwitchSource

COMMAND = ("scontrol", "show", "topology")
UNITS = ("blockname", "ringname", "torusname")  # each is a leaf switch to the model
IGNORED = ("aggregatedblock", "blocksizes", "placementdims")  # what lines have that name no unit of their own


def tree(text: str) -> Tree:
    """The switches in `text`.

    Raises SiteError that names a wrong line, or a switch that is not described. If scontrol lists all nodes below a
    higher switch, they are ignored: `Switches` is enough.
    """
    made = _of_lines(text)
    known = {*made.leaves, *made.parents.values()}
    if missing := [child for child in made.parents if child not in known]:
        raise SiteError(f"Slurm's topology is cut off: it does not describe the switches {', '.join(missing[:5])}")
    if not made.leaves:
        raise SiteError("Slurm's topology has no switches; is there a TopologyPlugin=topology/tree?")
    return made


def blocks(ask: Ask) -> int | None:
    """The nodes of the smallest block; None without blocks. Raises SiteError if Slurm reports no switches."""
    text = _query(ask, "")
    smallest = min(map(len, tree(text).leaves.values()))
    return smallest if text.lstrip().startswith("BlockName=") else None


def named(line: str) -> dict[str, str]:
    """The words of the form NAME=VALUE in a line that scontrol printed."""
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def _of_lines(text: str) -> Tree:
    leaves: dict[str, list[str]] = {}
    parents: dict[str, str] = {}
    for line in _lines(text):
        words = {key.lower(): value for key, value in named(line).items()}
        if any(key in words for key in IGNORED):
            continue
        name, nodes, below = (words.get(key) for key in ("switchname", "nodes", "switches"))
        name = name or next((words[key] for key in UNITS if key in words), None)
        if not name or not (nodes or below):
            raise SiteError(f"this is not a line of Slurm's topology: {line[:200]!r}")
        if below and below != "(null)":
            parents |= dict.fromkeys(expand(below), name)
        else:
            leaves[name] = expand(nodes or "")
    return Tree(leaves, parents)


def _lines(text: str) -> list[str]:
    joined = re.sub(r"\\\s*\n\s*", " ", text)
    lines = (line.partition("#")[0].strip() for line in joined.splitlines())
    return [line for line in lines if line]


def _query(ask: Ask, name: str) -> str:
    """What Slurm prints about a topology, or about the cluster's default for ''."""
    return ask([*COMMAND, *([name] if name else [])])


SWITCHES = SwitchSource(lambda text, _: tree(text), _query)
