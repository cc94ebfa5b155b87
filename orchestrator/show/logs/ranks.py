"""The ranks behind the logs: who wrote a line, which ranks failed, and when a log ended."""

from __future__ import annotations

import contextlib
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.run.folder import attempt_folders
from torusrun.orchestrator.run.folder.records import RankEnd
from torusrun.orchestrator.run.folder.run_folder import Attempt


def bad_ends(attempt: Attempt) -> list[RankEnd]:
    """The ends of the ranks that failed, by time. Records that cannot be read are left out."""
    ends = []
    for rank in attempt_folders.recorded(attempt)["end"]:
        with contextlib.suppress(SiteError):
            ends.append(RankEnd.read(attempt.rank_end(rank)))
    return sorted((end for end in ends if end.failed), key=lambda end: end.ended_s)


def who(origin: str) -> str:
    """Who wrote lines with this origin: 'rank 3', 'rollout rank 0', 'the job', 'rank 3 of attempt 2'."""
    name = origin.removesuffix(" | ").rpartition("#")[2].strip()
    attempt, _, name = name.partition(" ") if "#" in origin else ("", "", name)
    *role, number = name.split()
    writer = " ".join([*role, "rank", number]) if number.isdecimal() else f"the {number}"
    return f"{writer} of attempt {attempt}" if attempt else writer


def written_s(path: Path) -> float:
    """When a file was last written, in seconds of its file system's clock; infinite if it cannot be read."""
    try:
        return path.lstat().st_mtime
    except OSError:
        return float("inf")
