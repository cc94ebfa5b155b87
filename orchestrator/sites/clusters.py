"""Clusters that torusrun knows: how each is recognised, and where every value that it gives was read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from orchestrator.sites.setting import Certainty, Setting
from orchestrator.spec.load import SHIPPED
from training.recipe.files import CERTAINTIES

FOLDER = Path(__file__).parent / "known"
GENERIC = "generic"  # what --cluster calls a cluster that is none of these
SECTIONS = ("node", "container")  # the parts of a site whose values are written one by one


@dataclass(frozen=True)
class KnownCluster:
    """A cluster's data file. `marks` give for each key of the site how sure it is and what it is from."""

    name: str
    title: str
    scheduler: str
    hosts: str
    all_of: frozenset[str]
    account: str
    values: dict[str, Any]
    marks: dict[str, tuple[str, ...]]

    def settings(self) -> Iterator[Setting]:
        """The values of the site that ships for it, each with its source."""
        for key, value in self.values.items():
            certainty, source, *note = self.marks[key]
            extra = f", {note[0]}" if note else ""
            words = source if certainty == "memory" else f"{source} ({certainty})"
            yield Setting(key, value, f"{words}{extra}", Certainty.KNOWN)

    def is_here(self, scheduler: str, hosts: Iterable[str], names: frozenset[str]) -> bool:
        """Whether a login node of these names is one of its, or its queues and resources are among `names`."""
        if scheduler != self.scheduler:
            return False
        return any(re.fullmatch(self.hosts, host) for host in hosts) or self.all_of <= names


@cache
def clusters() -> dict[str, KnownCluster]:
    """All known clusters by name."""
    return {path.stem: _load(path) for path in sorted(FOLDER.glob("*.yaml"))}


def recognised(scheduler: str, hosts: Iterable[str], names: Iterable[str]) -> list[KnownCluster]:
    """Those that a login node with these host names, queues and resources may belong to."""
    told, called = frozenset(names), tuple(hosts)
    return [cluster for cluster in clusters().values() if cluster.is_here(scheduler, called, told)]


def flat(site: dict[str, Any]) -> dict[str, Any]:
    """A site's values under dotted keys."""
    found: dict[str, Any] = {}
    for key, value in site.items():
        if key in SECTIONS:
            found |= {f"{key}.{inner}": held for inner, held in value.items()}
        else:
            found[key] = value
    return found


def _load(path: Path) -> KnownCluster:
    held = yaml.safe_load(path.read_text(encoding="utf-8"))
    site = yaml.safe_load((SHIPPED / f"{held['site']}.yaml").read_text(encoding="utf-8"))
    sources = held["sources"]
    marks = {key: (certainty, sources[source], *note) for key, (certainty, source, *note) in held["marks"].items()}
    assert {mark[0] for mark in marks.values()} <= set(CERTAINTIES), path
    return KnownCluster(
        path.stem,
        held["title"],
        held["scheduler"],
        held["recognised"]["hosts"],
        frozenset(held["recognised"]["all_of"]),
        held["account"],
        flat(site),
        marks,
    )
