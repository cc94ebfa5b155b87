"""Why an attempt has no step yet, from the records that its job leaves before the first one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import read_object
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.run.folder import attempt_folders
from torusrun.orchestrator.run.folder.events import Event, Started, Submitting
from torusrun.orchestrator.run.folder.ledger import last
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.training.counted import counted
from torusrun.training.reporting.events import START

UNMATCHED_S = 60.0  # after the start of a command, whose log should have a step by then
NO_REASON = "in the queue; the scheduler gives no reason"


def waiting(
    status: Status,
    events: Sequence[Event],
    attempt: Attempt,
    rows: Sequence[Mapping[str, Any]],
    *,
    command: bool,
    pattern: bool = False,
    now_s: float = 0.0,
) -> str:
    """Why an attempt has no step yet; '' if it has a step, is over, or the records do not say.

    `rows` are the metrics of this attempt alone. A `command` need not record steps; once it runs, its log says more. If
    its steps are read from its log by a `pattern`, this should have matched a minute after the start, at `now_s`.
    """
    if any(row["event"] != START for row in rows):
        return ""
    if status.state is State.RUNNING:
        began = last(events, Started, attempt.number)
        waits = _at_work(attempt, began, bool(rows), command)
        if not waits and pattern and began and now_s - began.time_s > UNMATCHED_S and _has_text(attempt.rank_log(0)):
            waits = "metrics.pattern matches no line of rank 0's log so far"
    else:
        waits = NO_REASON if status.state is State.PENDING and not status.reason else ""
    submitting = last(events, Submitting, attempt.number)
    resumes = f"resumes from {submitting.resumes}" if submitting and submitting.resumes and not rows else ""
    return "; ".join(filter(None, (waits, resumes))) if waits or status.state is State.PENDING else ""


def _at_work(attempt: Attempt, began: Started | None, met: bool, command: bool) -> str:
    if met:
        return "the ranks have met; the first step is not recorded yet"
    if not began:
        if attempt.launch.exists():
            return "the image is checked, or copied to the nodes"
        if attempt.preflight_order.exists():
            return "its nodes and the links between them are checked"
        return "the hosts are put in order" if attempt.pulse.exists() else "the job starts on its first node"
    started, ranks = len(attempt_folders.recorded(attempt)["start"]), math.prod(began.grid or ())
    if started < ranks:
        copying = "; each node copies the image" if _copies(attempt) else ""
        return f"{started} of {counted(ranks, 'rank')} started{copying}"
    if command:
        return ""
    if attempt.rendezvous.exists():
        return "the ranks meet: rank 0 waits for the others"
    return "the ranks load their program and data"


def _has_text(log: Path) -> bool:
    """Whether a log exists and is not empty."""
    try:
        return log.stat().st_size > 0
    except OSError:
        return False


def _copies(attempt: Attempt) -> bool:
    """Whether the ranks start from a copy of the image on their node."""
    try:
        launch = read_object(attempt.launch) or {}
    except SiteError:
        return False
    roles = launch.get("roles")
    main = roles[0] if isinstance(roles, list) and roles else None
    container = main.get("container") if isinstance(main, dict) else None
    return isinstance(container, dict) and bool(container.get("stage"))
