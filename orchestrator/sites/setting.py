"""A value of a site with its source, and the choice among several values for one key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any


class Certainty(IntEnum):
    """How certain a value is, the most certain first."""

    CHOSEN = 0  # by the user
    TOLD = 1  # by a command, now
    KNOWN = 2  # for this cluster, from its data file
    ASSUMED = 3


@dataclass(frozen=True)
class Setting:
    """One value of a site's file. `key` is dotted, as in node.ranks; `source` is the comment after it."""

    key: str
    value: Any
    source: str
    certainty: Certainty = Certainty.TOLD

    @property
    def comment(self) -> str:
        return f"assumed: {self.source}" if self.certainty is Certainty.ASSUMED else self.source


def surest(settings: Iterable[Setting]) -> dict[str, Setting]:
    """One setting for each key: the most certain; of equally certain ones, the first."""
    found: dict[str, Setting] = {}
    for setting in sorted(settings, key=lambda setting: setting.certainty):
        found.setdefault(setting.key, setting)
    return found
