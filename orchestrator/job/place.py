"""Where the program of an attempt failed: the innermost frame of its error, and the step by its heartbeat."""

from __future__ import annotations

import re
from dataclasses import replace

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.private import read_bytes
from torusrun.orchestrator.base.states import Cause
from torusrun.orchestrator.run.folder.log_errors.kinds import LineKind
from torusrun.orchestrator.run.folder.log_errors.last_error import read_last
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import Attempt

# A frame as Python writes it, and as rich does in its boxes. The folder may differ between attempts.
FRAMES = (re.compile(r'File "(?:[^"]*/)?([^"/]+)", line (\d+)'), re.compile(r"(?:\S*/)?(\S+\.py):(\d+) in "))
LARGEST_HEARTBEAT = 100


def placed(attempt: Attempt, end: End) -> End:
    """The end of an attempt; if its program failed, with the place of the error and the step, if they are known."""
    if end.cause is not Cause.PROGRAM or not end.ranks:
        return end
    place = _place(attempt, end.ranks[0])
    evidence = {**end.evidence, "place": place} if place else end.evidence
    return replace(end, step=_heartbeat(attempt) if end.step is None else end.step, evidence=evidence)


def _place(attempt: Attempt, rank: int) -> str:
    """The innermost frame of the error in a rank's log, as 'train.py:30'; '' if it is no traceback."""
    error = read_last(attempt.rank_log(rank))
    frames = (match for line in reversed(error.lines) for frame in FRAMES if (match := frame.search(line)))
    found = next(frames, None) if error.kind is LineKind.TRACEBACK else None
    return f"{found[1]}:{found[2]}" if found else ""


def _heartbeat(attempt: Attempt) -> int | None:
    """The step that a command wrote into its heartbeat; None if it wrote none."""
    try:
        wrote = read_bytes(attempt.heartbeat, LARGEST_HEARTBEAT).strip()
    except (OSError, SiteError):
        return None
    return int(wrote) if wrote.isdigit() and len(wrote) < 16 else None
