"""A source of the switches above the nodes: what prints them, and how that is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.network.hosts.tree import Tree
from orchestrator.schedulers.cluster_facts import Ask


@dataclass(frozen=True)
class SwitchSource:
    """`query` gets the text by commands, unless the site names a file that holds it; `tree` reads the text.

    Both also take the site's topology.attribute, whose default is `attribute`. They raise SiteError.
    """

    tree: Callable[[str, str], Tree]
    query: Callable[[Ask, str], str]
    attribute: str = ""
