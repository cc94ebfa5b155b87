"""Facts that the folders of a run's attempts show without its ledger."""

from __future__ import annotations

import contextlib
import os
import re
from collections import defaultdict
from itertools import islice

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import read_object
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.folder.shown_plan import as_grid

NUMBER = re.compile(r"[1-9]\d{0,4}")
RECORD = re.compile(r"(\d{4,8})\.(\w+)\.json")
ROLE = re.compile(r"[a-z][a-z0-9_]{0,30}")
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
    try:
        with os.scandir(attempt.ranks) as entries:
            for match in (RECORD.fullmatch(entry.name) for entry in islice(entries, MOST_ENTRIES)):
                if match:
                    ranks[match[2]].add(int(match[1]))
    except OSError:
        pass
    return ranks


def supervised_on(attempt: Attempt) -> str:
    """The host of the attempt's supervisor, the first of its job; '' if it has not begun, or is not known."""
    try:
        return private.read_bytes(attempt.pulse, LARGEST_NAME).decode(errors="replace").strip()
    except OSError:
        return ""


def placed(attempt: Attempt) -> tuple[tuple[int, ...] | None, dict[str, list[int]]]:
    """The grid, and the ranks of each host; None and empty if the attempt was not placed, or if unknown."""
    try:
        kept = read_object(attempt.placement) or {}
        hosts: dict[str, list[int]] = {}
        for rank, host, _, *_ in kept.get("slots", ()):
            if type(rank) is not int or type(host) is not str:
                raise TypeError
            hosts.setdefault(host, []).append(rank)
    except (SiteError, TypeError, ValueError):
        return None, {}
    return as_grid(kept.get("grid")), hosts


def roles(attempt: Attempt) -> dict[tuple[int, str], str]:
    """The role of each (rank, host), in the order of ranks; {} in a run without roles, or before it is placed."""
    with contextlib.suppress(SiteError, TypeError, ValueError):
        kept = read_object(attempt.placement) or {}
        named = zip(kept.get("slots", ()), kept.get("roles") or (), strict=False)
        # Another user's run must not lead to files elsewhere by a role's name.
        return {(int(rank), plain(host)): name for (rank, host, *_), name in named if ROLE.fullmatch(name)}
    return {}
