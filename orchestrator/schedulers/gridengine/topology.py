"""Reads Grid Engine's racks: a rack is a host group, as `qconf -shgrp @rack1` prints it."""

from __future__ import annotations

import re

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.place.hosts.tree import Tree
from torusrun.orchestrator.schedulers.cluster_facts import Ask
from torusrun.orchestrator.schedulers.traits import SwitchSource

GROUPS = ("qconf", "-shgrpl")
RACK = "@rack"  # how the names of racks' host groups begin, unless topology.attribute says otherwise


def show(group: str) -> tuple[str, ...]:
    """The command that prints one group with all its hosts, including those of groups in it."""
    return ("qconf", "-shgrp_resolved", group)


def group_names(text: str, prefix: str) -> list[str]:
    """The groups in the output of `qconf -shgrpl` with names that begin with `prefix`. Raises SiteError if none."""
    named = [word for word in text.split() if word.startswith("@")]
    chosen = [word for word in named if word.startswith(prefix)]
    if not chosen:
        raise SiteError(f"Grid Engine has no host group whose name begins with {prefix!r} (it has {', '.join(named)})")
    return chosen


def printed(ask: Ask, prefix: str) -> str:
    """All host groups whose names begin with `prefix`, as Grid Engine prints them."""
    answers = {group: ask(show(group)) for group in group_names(ask(GROUPS), prefix)}
    return "\n".join(
        answer if answer.startswith("group_name") else f"group_name {group}\nhostlist {answer}"
        for group, answer in answers.items()
    )


def tree(text: str) -> Tree:
    """The racks in a text of any number of printed groups. Raises SiteError if `text` has none.

    A group that names other groups is ignored: only groups of hosts are leaves.
    """
    joined = re.sub(r"\\\s*\n\s*", " ", text)
    found = re.findall(r"^group_name\s+(@\S+)\s*\nhostlist\s+(.*)$", joined, re.MULTILINE)
    leaves = {}
    for group, words in found:
        hosts = [word for word in words.split() if word != "NONE"]
        if hosts and not any(word.startswith("@") for word in hosts):
            leaves[group] = hosts
    if not leaves:
        raise SiteError(f"this is not the output of qconf -shgrp for a group with hosts: {text.strip()[:80]!r}")
    return Tree(leaves)


SWITCHES = SwitchSource(lambda text, _: tree(text), printed, RACK)
