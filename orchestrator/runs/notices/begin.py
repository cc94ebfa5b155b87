"""Starts the process that sends the notices of an attempt. Nothing that fails here changes a run."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

from orchestrator.base import process
from orchestrator.base.errors import SiteError
from orchestrator.base.states import State
from orchestrator.runs.folder.events import Event, Notified
from orchestrator.runs.folder.run_folder import RunFolder

JOB_WAITS_S = 15.0  # for the notices of its last attempt: a scheduler ends what a job leaves behind
MOST = 5  # processes that one command starts
PROGRAM = "orchestrator.runs.notices.sending"
WELL = (State.COMPLETED, State.CANCELLED)
_begun: set[str] = set()  # runs of this process


def from_job(run: RunFolder, number: int, at: Sequence[str], moments: Sequence[str], *, wait: bool) -> None:
    """Send what is due of `moments` from a job, if the moments `at` are asked for; `wait` for a few seconds at most."""
    if not {*at} & {*moments, *(["failure"] if "end" in moments else [])}:
        return
    argv = process.module(sys.executable, PROGRAM, run.folder, str(number), "job", *moments)
    with contextlib.suppress(SiteError, OSError):
        if not wait:
            return process.detach(argv, sys.stderr.buffer)
        done = process.run(argv, timeout_s=JOB_WAITS_S, environment=os.environ)
        print(done.stderr, end="", file=sys.stderr, flush=True)


def from_client(run: RunFolder, number: int, at: Sequence[str], state: State, events: Sequence[Event]) -> None:
    """Send, from the command of a user, what the job of a run that is over has not sent. This does not wait."""
    due = {"end", "over", *(["failure"] if state not in WELL else [])} & {*at}
    known = [event for event in events if isinstance(event, Notified) and event.attempt == number and not event.left]
    sent = {moment for event in known for moment in event.moments}
    if due <= sent or run.run_id in _begun or len(_begun) >= MOST:
        return
    _begun.add(run.run_id)
    argv = process.module(sys.executable, PROGRAM, run.folder, str(number), "client", "end", "over")
    with contextlib.suppress(SiteError, OSError), open(os.devnull, "ab") as nothing:
        process.detach(argv, nothing)
