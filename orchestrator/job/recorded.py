"""Records the end of an attempt, whatever happens, once: its scheduler may start its job again (`scontrol requeue`).

The record names the place where the program failed: the innermost frame of its error, and the step by its heartbeat.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import time
import traceback
from collections.abc import Callable
from dataclasses import replace

from torusrun.orchestrator.base import defect
from torusrun.orchestrator.base.errors import SiteError, TorusrunError, UserError
from torusrun.orchestrator.base.private import read_bytes
from torusrun.orchestrator.base.signals import signal_name
from torusrun.orchestrator.base.states import Cause, State
from torusrun.orchestrator.job.in_job import InJob
from torusrun.orchestrator.run import hooks
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.attempt_folders import supervised_on
from torusrun.orchestrator.run.folder.events import Ended, Started
from torusrun.orchestrator.run.folder.how_ended import How, ended
from torusrun.orchestrator.run.folder.log_errors.kinds import LineKind
from torusrun.orchestrator.run.folder.log_errors.last_error import read_last
from torusrun.orchestrator.run.folder.records import End, no_room, on_full_disk
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder

POLL_S = 0.25
RECORDED_S = 10.0
READABLE_S = 5.0  # how long the record of an end may be unreadable
LOOK_S = 0.05
# A frame as Python writes it, and as rich does in its boxes. The folder may differ between attempts.
FRAMES = (re.compile(r'File "(?:[^"]*/)?([^"/]+)", line (\d+)'), re.compile(r"(?:\S*/)?(\S+\.py):(\d+) in "))
LARGEST_HEARTBEAT = 100


def recorded(run: RunFolder, attempt: Attempt, work: Callable[[], End], job: InJob | None = None) -> End:
    """The end that `work` returns, or that of its failure, recorded for the attempt; an end that is settled stays.

    Only completion replaces it: the job may have been silent for a while, and at work. `job` is around the attempt.
    """
    if end := settled_end(run, attempt):
        print(f"torusrun: attempt {attempt.number} has ended, and its job was begun again: nothing is started")
        return end
    try:
        end = work()
    except TorusrunError as error:
        end = failed(error)
    except Exception as error:
        traceback.print_exc()
        passes = isinstance(error, (OSError, MemoryError))  # perhaps: a file system that does not answer for a moment
        end = ended(How.ERROR if passes else How.DEFECT, why=defect.report(error, ["supervise"]))
    if end.state is State.FAILED and no_room(run.folder):
        end = on_full_disk(end)
    earlier = settled_end(run, attempt)  # by another job, if this job was cut off
    if earlier and (earlier.state is State.COMPLETED or end.state is not State.COMPLETED):
        print(f"torusrun: attempt {attempt.number} is known to have ended: {earlier.reason}")
        return earlier
    continues = job is not None and job.keeps_going and end.state is not State.COMPLETED
    end = replace(placed(attempt, end), kept_going=continues)
    end.write(attempt.end)
    if end.certain:
        with contextlib.suppress(SiteError):  # a full disk; the record is written
            ledger.append(run.ledger, Ended.by(attempt.number, end))
    hooks.ended(run, attempt.number, end, wait=job is None or not job.has_others)
    return end


def failed(error: TorusrunError) -> End:
    """The end of an attempt that failed with this error."""
    return ended(How.USER_ERROR if isinstance(error, UserError) else How.ERROR, why=error)


def settled_end(run: RunFolder, attempt: Attempt) -> End | None:
    """The attempt's end from an earlier start of its job, if that end is certain: the run may be resumed since."""
    with contextlib.suppress(SiteError):  # a damaged record
        if (end := End.read(attempt.end)) and end.certain:
            return end
    if seen := ledger.last(ledger.events(run.ledger), Ended, attempt.number):
        return seen.end
    return None


def end_of(attempt: Attempt, code: int) -> End:
    """The recorded end of an attempt that is over; without a record, its end by the exit `code` of its supervisor.

    A record that cannot be read stays: it may be unreadable for a moment only.
    """
    until_s = time.time() + READABLE_S
    while True:
        try:
            if end := End.read(attempt.end):
                return end
            end = _of_supervisor(attempt, code)
            end.write(attempt.end)
            return end
        except SiteError:
            if time.time() >= until_s:
                return _of_supervisor(attempt, code)
        time.sleep(LOOK_S)


def _of_supervisor(attempt: Attempt, code: int) -> End:
    """The end of an attempt whose supervisor ended by this code (negative: a signal), and recorded nothing."""
    if code < 0:
        host = supervised_on(attempt)
        return ended(How.SUPERVISOR_KILLED, signal=signal_name(-code), supervisor=host, certain=False)
    return ended(How.SUPERVISOR_ENDED, exit_code=code, certain=False)


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
    for folder in (attempt.ranks, attempt.roles):
        shutil.rmtree(folder, ignore_errors=True)


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
    innermost = next(frames, None) if error.kind is LineKind.TRACEBACK else None
    return f"{innermost[1]}:{innermost[2]}" if innermost else ""


def _heartbeat(attempt: Attempt) -> int | None:
    """The step that a command wrote into its heartbeat; None if it wrote none."""
    try:
        wrote = read_bytes(attempt.heartbeat, LARGEST_HEARTBEAT).strip()
    except (OSError, SiteError):
        return None
    return int(wrote) if wrote.isdigit() and len(wrote) < 16 else None
