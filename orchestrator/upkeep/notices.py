"""Starts the process that sends the notices of an attempt. Nothing that fails here changes a run."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.run.folder import shown_plan
from torusrun.orchestrator.run.folder.events import Notified
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.hooks import Over
from torusrun.orchestrator.run.plan.plan import Plan

JOB_WAITS_S = 15.0  # for the notices of its last attempt: a scheduler ends what a job leaves behind
MOST = 5  # runs for which one command sends
PROGRAM = "torusrun.orchestrator.upkeep.send_notices"
WELL = (State.COMPLETED, State.CANCELLED)
_begun: set[str] = set()  # runs of this process
_senders: list[subprocess.Popen[bytes]] = []  # of this process, the newest last


def from_job(run: RunFolder, number: int, at: Sequence[str], moments: Sequence[str], *, wait: bool) -> None:
    """Send from a job the notices of `moments`, if `at` requests them; `wait` for a few seconds at most."""
    if not {*at} & {*moments, *(["failure"] if "end" in moments else [])}:
        return
    argv = process.module(sys.executable, PROGRAM, "job", ",".join(moments), run.folder, str(number))
    with contextlib.suppress(SiteError, OSError):
        if not wait:
            process.detach(argv, sys.stderr.buffer)
            return
        done = process.run(argv, timeout_s=JOB_WAITS_S, environment=os.environ)
        print(done.stderr, end="", file=sys.stderr, flush=True)


def started(run: RunFolder, number: int, plan: Plan) -> None:
    """Send the notices of a start."""
    from_job(run, number, plan.notify.moments, ["start"], wait=False)


def ended(run: RunFolder, number: int, end: End, *, wait: bool) -> None:
    """Send the notices of an end that is certain."""
    if end.certain:
        plan = shown_plan.find(run, [number])[0]
        moments = ["end"] if end.kept_going else ["end", "over"]
        from_job(run, number, plan.notices if plan else (), moments, wait=wait)


def over(run: RunFolder, number: int, plan: Plan) -> None:
    """Send the notices of the end of a run that kept going."""
    from_job(run, number, plan.notify.moments, ["end", "over"], wait=True)


def is_due(run: Over) -> bool:
    """Whether a notice of a run that is over is still to be sent."""
    due = {"end", "over", *(["failure"] if run.state not in WELL else [])} & {*run.at}
    known = [event for event in run.events if isinstance(event, Notified) and event.attempt == run.number]
    return not due <= {moment for event in known if not event.left for moment in event.moments}


def from_client(runs: Iterable[Over]) -> None:
    """Send, from the command of a user, the notices that the jobs of these runs have not sent, without waiting.

    One process sends for all runs in turn. While it works, no other is started.
    """
    due = [run for run in runs if run.run.run_id not in _begun and is_due(run)][: max(MOST - len(_begun), 0)]
    if not due or (_senders and _senders[-1].poll() is None):
        return
    _begun.update(run.run.run_id for run in due)
    attempts = [str(word) for run in due for word in (run.run.folder, run.number)]
    argv = process.module(sys.executable, PROGRAM, "client", "end,over", *attempts)
    with contextlib.suppress(SiteError, OSError), open(os.devnull, "ab") as nothing:
        _senders.append(process.detach(argv, nothing))
