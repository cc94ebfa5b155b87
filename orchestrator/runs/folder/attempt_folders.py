"""Facts that the folders of a run's attempts show without its ledger."""

from __future__ import annotations

import os
import re

from orchestrator.base.errors import SiteError
from orchestrator.base.json_files import read_object
from orchestrator.runs.folder.run_folder import Attempt, RunFolder
from orchestrator.runs.folder.shown_plan import as_grid

NUMBER = re.compile(r"[1-9]\d{0,4}")


def attempts(run: RunFolder) -> list[int]:
    """The numbers of the attempts that have a folder, in order; empty if the folder cannot be read."""
    try:
        with os.scandir(run.attempts) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return sorted(int(name) for name in names if NUMBER.fullmatch(name))


def placed(attempt: Attempt) -> tuple[tuple[int, ...] | None, tuple[str, ...]]:
    """The grid and the hosts on which an attempt was placed; None and () if it was not placed, or if unknown."""
    try:
        kept = read_object(attempt.placement) or {}
    except SiteError:
        return None, ()
    slots = kept.get("slots")
    hosts = [slot[1] for slot in slots if type(slot) is list and len(slot) > 3] if type(slots) is list else []
    whole = all(type(host) is str for host in hosts)
    return as_grid(kept.get("grid")), tuple(dict.fromkeys(hosts)) if whole else ()
