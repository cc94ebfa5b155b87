"""Signs of a failure in the folder of a running attempt: rank ends and the supervisor's pulse."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from orchestrator.base.errors import SiteError
from orchestrator.base.json_files import read_object
from orchestrator.base.private import read_bytes
from orchestrator.runs.folder.records import RankEnd
from orchestrator.runs.folder.run_folder import Attempt
from orchestrator.runs.state.clocks import ahead_s

RECORD = re.compile(r"(\d{4,8})\.(end|told)\.json")
# Limits of one read of one attempt.
MOST_ENTRIES = 100_000
MOST_ENDS = 64
LARGEST_NAME_BYTES = 256


def suspicion(attempt: Attempt, now_s: float) -> str:
    """'suspected: ...', or '' if there is no suspicion, as of `now_s` (of time.time()).

    While nothing is wrong, it costs a stat and a listing of a folder. A suspicion is checked again by the clock of the
    file system: this machine's clock may differ from the nodes'.
    """
    found = _suspicion(attempt, now_s)
    return _suspicion(attempt, now_s + ahead_s(attempt.folder)) if found else ""


def _suspicion(attempt: Attempt, now_s: float) -> str:
    pulse_age_s = _pulse_age_s(attempt, now_s)
    ended, told = recorded(attempt)
    if pulse_age_s is None and not ended:
        return ""
    from orchestrator.runs.state import suspect  # imported late: needed only if a run is running

    ends = _ends(attempt, sorted(ended))
    placement = placed(attempt) if any(not end.good for end in ends) else {}
    silent = pulse_age_s is not None and pulse_age_s > suspect.SILENT_S
    host = _host(attempt) if silent else ""
    return suspect.suspicion(placement, ended | told, ends, pulse_age_s, host, now_s)


def _pulse_age_s(attempt: Attempt, now_s: float) -> float | None:
    """The age of the supervisor's pulse in seconds; None if there is no pulse, as in older versions."""
    try:
        found = attempt.pulse.lstat()
    except OSError:
        return None
    return max(now_s - found.st_mtime, 0.0) if stat.S_ISREG(found.st_mode) else None


def _host(attempt: Attempt) -> str:
    """The host of the supervisor, from its pulse; '' if unknown."""
    try:
        return read_bytes(attempt.pulse, LARGEST_NAME_BYTES).decode(errors="replace").strip()
    except OSError:
        return ""


def recorded(attempt: Attempt) -> tuple[set[int], set[int]]:
    """(the ranks that recorded their end, the ranks that recorded a request to end)."""
    try:
        with os.scandir(attempt.ranks) as entries:
            names = [entry.name for entry in islice(entries, MOST_ENTRIES)]
    except OSError:
        return set(), set()
    found = [(int(match[1]), match[2]) for name in names if (match := RECORD.fullmatch(name))]
    return {rank for rank, kind in found if kind == "end"}, {rank for rank, kind in found if kind == "told"}


def _ends(attempt: Attempt, ended: Sequence[int]) -> list[RankEnd]:
    """The end records of the first MOST_ENDS of these ranks, as far as readable; `ended_s` is the file's time."""
    found = []
    for rank in ended[:MOST_ENDS]:
        with contextlib.suppress(SiteError, OSError):
            path = attempt.rank_end(rank)
            found.append(replace(RankEnd.read(path), ended_s=path.stat().st_mtime))
    return found


def placed(attempt: Attempt) -> dict[str, list[int]]:
    """The ranks of every host; empty if the placement cannot be read."""
    try:
        slots = (read_object(attempt.placement) or {}).get("slots")
    except SiteError:
        return {}
    found: dict[str, list[int]] = {}
    for slot in slots if type(slots) is list else []:
        if type(slot) is not list or len(slot) < 4 or type(slot[0]) is not int or type(slot[1]) is not str:
            return {}
        found.setdefault(slot[1], []).append(slot[0])
    return found
