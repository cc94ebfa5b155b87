"""Facts that the folders of a run's attempts show without its ledger."""

from __future__ import annotations

import contextlib
import os
import re
from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import damaged, read_object
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder

if TYPE_CHECKING:  # `status` needs it for few runs
    from torusrun.orchestrator.place.placement.mapping import Placement

NUMBER = re.compile(r"[1-9]\d{0,4}")
RECORD = re.compile(r"(\d{4,8})\.(\w+)\.json")
MOST_ENTRIES = 100_000
LARGEST_NAME = 1_000


def attempts(run: RunFolder) -> list[int]:
    """The numbers of the attempts that have a folder, in order; empty if the folder cannot be read."""
    try:
        with os.scandir(run.attempts) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return sorted(int(name) for name in names if NUMBER.fullmatch(name))


def recorded(attempt: Attempt) -> dict[str, set[int]]:
    """The ranks that have a record of each kind ("start", "told", "end"); empty if the folder cannot be read."""
    ranks: dict[str, set[int]] = defaultdict(set)
    with contextlib.suppress(OSError), os.scandir(attempt.ranks) as entries:
        for entry in islice(entries, MOST_ENTRIES):
            if match := RECORD.fullmatch(entry.name):
                ranks[match[2]].add(int(match[1]))
    return ranks


def supervised_on(attempt: Attempt) -> str:
    """The host of the attempt's supervisor, the first of its job; '' if it has not begun, or is not known."""
    try:
        return private.read_bytes(attempt.pulse, LARGEST_NAME).decode(errors="replace").strip()
    except OSError:
        return ""


def placement(attempt: Attempt) -> Placement | None:
    """The placement of an attempt; None before it is placed. Raises SiteError if it is damaged."""
    from torusrun.orchestrator.place.placement.mapping import Placement

    kept = read_object(attempt.placement)
    try:
        return Placement.from_json(kept) if kept is not None else None
    except (KeyError, TypeError, ValueError):
        raise damaged(attempt.placement, "it is no placement") from None


def placed(attempt: Attempt) -> tuple[tuple[int, ...] | None, dict[str, list[int]]]:
    """The grid, and the ranks of each host; None and empty if the attempt was not placed, or if unknown."""
    known, hosts = _known(attempt), defaultdict[str, list[int]](list)
    for slot in known.slots if known else ():
        hosts[slot.host].append(slot.rank)
    return known.grid.dims if known else None, hosts


def roles(attempt: Attempt) -> dict[tuple[int, str], str]:
    """The role of each (rank, host), in the order of ranks; {} in a run without roles, or before it is placed."""
    known = _known(attempt)
    return {(slot.rank, plain(slot.host)): slot.role for slot in known.slots if slot.role} if known else {}


def _known(attempt: Attempt) -> Placement | None:
    with contextlib.suppress(SiteError):
        return placement(attempt)
    return None
