"""Handles a job that its scheduler starts again, as by `scontrol requeue`: it continues the same attempt."""

from __future__ import annotations

import contextlib
import shutil
import time

from orchestrator.base.errors import SiteError
from orchestrator.runs.folder import ledger
from orchestrator.runs.folder.events import Ended, Started
from orchestrator.runs.folder.records import End
from orchestrator.runs.folder.run_folder import Attempt, RunFolder

POLL_S = 0.25
RECORDED_S = 10.0


def settled_end(run: RunFolder, attempt: Attempt) -> End | None:
    """The attempt's end from an earlier start of its job, if that end is certain: the run may be resumed since."""
    with contextlib.suppress(SiteError):  # a damaged record
        if (end := End.read(attempt.end)) and end.certain:
            return end
    if seen := ledger.last(ledger.events(run.ledger), Ended, attempt.number):
        return seen.end
    return None


def forget_first(run: RunFolder, attempt: Attempt) -> None:
    """Remove the records of an earlier start, whose ranks have ended: they would be read as this start's.

    If the job was requeued while it ran, the earlier supervisor may still write its end. This waits for that.
    """
    if ledger.last(ledger.events(run.ledger), Started, attempt.number):
        until_s = time.monotonic() + RECORDED_S
        while not attempt.end.exists() and time.monotonic() < until_s:
            time.sleep(POLL_S)
    with contextlib.suppress(OSError):
        attempt.end.unlink(missing_ok=True)
    shutil.rmtree(attempt.ranks, ignore_errors=True)
