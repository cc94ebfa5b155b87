"""What the folder of an attempt says about it beyond its state, in words: why it has no step yet, what seems wrong.

It changes no state. A scheduler takes from half a minute to many minutes to report a lost node; the supervisor's pulse
shows it earlier. Ages are compared by the clock of the file system, which stamps the files of all machines.
"""

from __future__ import annotations

import math
import os
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import read_object
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.run.folder import attempt_folders
from torusrun.orchestrator.run.folder.at_work import Slow
from torusrun.orchestrator.run.folder.events import Event, Started, Submitting
from torusrun.orchestrator.run.folder.ledger import last
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.orchestrator.run.state.pace import duration
from torusrun.training.counted import counted
from torusrun.training.reporting.events import START

SILENT_S = 30.0  # the supervisor touches its pulse every 5 s
UNMATCHED_S = 60.0  # after the start of a command, whose log should have a step by then
NO_REASON = "in the queue; the scheduler gives no reason"
KEPT_S = 60.0  # a known difference of clocks
_known: dict[tuple[int, int], tuple[float, float]] = {}  # by device and setting of the clock: time.monotonic(), answer


def remarks(attempt: Attempt, now_s: float, unready: str = "") -> str:
    """What is suspected of a running attempt at `now_s` (of time.time()), and which ranks are slow; '' if nothing.

    `unready` are services that are not ready, in words.
    """
    slow = Slow.read(attempt.slow)
    return "; ".join(filter(None, (_silence(attempt, now_s), unready, slow.words if slow else "")))


def _silence(attempt: Attempt, now_s: float) -> str:
    """'suspected: the supervisor ...' if its pulse is old, also by the clock of the file system; else ''."""
    if _pulse_age_s(attempt, now_s) <= SILENT_S:
        return ""
    age_s = _pulse_age_s(attempt, now_s + ahead_s(attempt.folder))
    if age_s <= SILENT_S:
        return ""
    where = f" on {host}" if (host := attempt_folders.supervised_on(attempt)) else ""
    return f"suspected: the supervisor{where} is silent for {duration(age_s)}: it or its host is gone or stopped"


def _pulse_age_s(attempt: Attempt, now_s: float) -> float:
    """The age of the supervisor's pulse; 0 without a pulse."""
    try:
        pulse = attempt.pulse.lstat()
    except OSError:
        return 0.0
    return now_s - pulse.st_mtime if stat.S_ISREG(pulse.st_mode) else 0.0


def ahead_s(folder: Path) -> float:
    """Seconds by which the clock of the file system of `folder` is ahead of this machine's; 0.0 if it is unknown."""
    import tempfile

    try:
        clocks = folder.stat().st_dev, round(time.time() - time.monotonic())
        if clocks not in _known or time.monotonic() > _known[clocks][0] + KEPT_S:
            with tempfile.TemporaryFile(dir=folder, prefix=".clock-") as file:
                _known[clocks] = time.monotonic(), os.fstat(file.fileno()).st_mtime - time.time()
        return _known[clocks][1]
    except OSError:
        return 0.0


def now_by_writer_s(written: Path, newest_s: float, now_s: float) -> float:
    """`now_s` (of this machine's clock), converted to the clock that wrote `newest_s` at the end of `written`."""
    try:
        return newest_s + now_s + ahead_s(written.parent) - written.stat().st_mtime
    except OSError:
        return now_s


def waiting(
    status: Status,
    events: Sequence[Event],
    attempt: Attempt,
    rows: Sequence[Mapping[str, Any]],
    *,
    command: bool,
    pattern: bool = False,
    now_s: float = 0.0,
    unready: str = "",
) -> str:
    """Why an attempt has no step yet; '' if it has a step, is over, or the records do not say.

    `rows` are the metrics of this attempt alone. A `command` need not record steps; once it runs, its log says more. If
    its steps are read from its log by a `pattern`, this should have matched a minute after the start, at `now_s`. The
    services that are `unready` are why the main role has not begun.
    """
    if any(row["event"] != START for row in rows):
        return ""
    if status.state is State.RUNNING:
        began = last(events, Started, attempt.number)
        first = last(events, Submitting, 1)
        awaited = first.after_ready if first else {}
        waits = _at_work(attempt, began, bool(rows), command, awaited=awaited, unready=unready)
        if not waits and pattern and began and now_s - began.time_s > UNMATCHED_S and _has_text(attempt.rank_log(0)):
            waits = "metrics.pattern matches no line of rank 0's log so far"
    else:
        waits = NO_REASON if status.state is State.PENDING and not status.reason else ""
    submitting = last(events, Submitting, attempt.number)
    resumes = f"resumes from {submitting.resumes}" if submitting and submitting.resumes and not rows else ""
    return "; ".join(filter(None, (waits, resumes))) if waits or status.state is State.PENDING else ""


def _at_work(
    attempt: Attempt, began: Started | None, met: bool, command: bool, *, awaited: Mapping[str, str], unready: str
) -> str:
    if met:
        return "the ranks have met; the first step is not recorded yet"
    if not began:
        if attempt.launch.exists():
            return "the image is checked"
        if attempt.preflight_order.exists():
            return "its nodes and the links between them are checked"
        if awaited and attempt.pulse.exists():
            return f"it waits for {' and '.join(f'{role} of {Path(run).name}' for role, run in awaited.items())}"
        return "the hosts are put in order" if attempt.pulse.exists() else "the job starts on its first node"
    ranks = math.prod(began.grid or ())
    started = sum(rank < ranks for rank in attempt_folders.recorded(attempt)["start"])  # without those of services
    if started < ranks:
        if unready:
            return unready
        return f"{started} of {counted(ranks, 'rank')} started{staging(attempt)}"
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


def staging(attempt: Attempt) -> str:
    """How far the hosts are with what they stage; '' if they are done, or stage nothing."""
    try:
        shown = read_object(attempt.staged) or {}
        written, whole, hosts = (int(shown.get(name, 0)) for name in ("written_bytes", "to_write_bytes", "hosts"))
    except (SiteError, TypeError, ValueError):
        return ""
    if "done" in shown or not whole:
        return ""
    to = counted(hosts, "host")
    return f"; staging {plain(str(shown.get('name')))} to {to}: {written / 1e9:.1f} of {whole / 1e9:.1f} GB"
