"""Where the program of an attempt failed: the innermost frame of its error, and the step by its heartbeat."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from orchestrator.base.errors import SiteError
from orchestrator.base.private import read_bytes
from orchestrator.base.states import Cause
from orchestrator.base.whole_lines import tail
from orchestrator.folder.records import End
from orchestrator.folder.run_folder import Attempt

# A frame as Python writes it, and as rich does in its boxes. The folder may differ between attempts.
FRAMES = (re.compile(r'File "(?:[^"]*/)?([^"/]+)", line (\d+)'), re.compile(r"(?:\S*/)?(\S+\.py):(\d+) in "))
LARGEST_HEARTBEAT = 100


def placed(attempt: Attempt, end: End) -> End:
    """The end of an attempt; if its program failed, with the place of the error and the step, if they are known."""
    if end.cause is not Cause.PROGRAM or not end.ranks:
        return end
    place = next(_frames(attempt, end.ranks[0], end.evidence.get("said", "")), "")
    evidence = {**end.evidence, "place": place} if place else end.evidence
    return replace(end, step=_heartbeat(attempt) if end.step is None else end.step, evidence=evidence)


def _frames(attempt: Attempt, rank: int, said: str) -> Iterator[str]:
    """The frames before the line that is the reason, as 'train.py:30', from the last one back."""
    lines = [line.decode(errors="replace") for line in tail(attempt.rank_log(rank))]
    ends = [n for n, line in enumerate(lines, 1) if said and said in line]
    for line in reversed(lines[: ends[-1] if ends else len(lines)]):
        for frame in FRAMES:
            if match := frame.search(line):
                yield f"{match[1]}:{match[2]}"


def _heartbeat(attempt: Attempt) -> int | None:
    """The step that a command wrote into its heartbeat; None if it wrote none."""
    try:
        wrote = read_bytes(attempt.heartbeat, LARGEST_HEARTBEAT).strip()
    except (OSError, SiteError):
        return None
    return int(wrote) if wrote.isdigit() and len(wrote) < 16 else None
