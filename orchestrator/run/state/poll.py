"""The state of many runs with at most one query of each scheduler per interval."""

from __future__ import annotations

import contextlib
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import SiteError, TorusrunError
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.run import hooks
from torusrun.orchestrator.run.folder import claim, index, ledger, settled
from torusrun.orchestrator.run.folder.claim import alone
from torusrun.orchestrator.run.folder.events import Ended, KeptGoing, Started
from torusrun.orchestrator.run.folder.how_ended import How
from torusrun.orchestrator.run.folder.how_ended import ended as end_of
from torusrun.orchestrator.run.folder.ledger import last
from torusrun.orchestrator.run.folder.records import End, no_room, on_full_disk
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.settled import Settled
from torusrun.orchestrator.run.folder.shown_plan import POLL_INTERVAL_S
from torusrun.orchestrator.run.state import depends, ended, next_attempt
from torusrun.orchestrator.run.state.depends import in_hold, told_by_keeper
from torusrun.orchestrator.run.state.lookup import look_up, look_up_added
from torusrun.orchestrator.run.state.record import Record, read_record
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.schedulers import answers
from torusrun.orchestrator.schedulers.answers import Answer
from torusrun.orchestrator.schedulers.client import Client, note_action
from torusrun.orchestrator.schedulers.words import whole

DEFAULT_TIMEOUT_S = 30.0
PATIENCE_S = 5.0  # after this a user believes that `status` hangs; a healthy scheduler answers in a second or two
NO_MORE_JOBS = "its jobs are over"
FEW = 1  # for one run, reading its folder is faster than reading the list of runs that are over


def views(
    runs: Sequence[RunFolder],
    now_s: float | None = None,
    keep: Callable[[Record | Settled], bool] | None = None,
    *,
    fresh: bool = False,
    patience_s: float = math.inf,
) -> list[View]:
    """The views of runs at `now_s` (of time.time(); default: now): of all runs, or of those that `keep` selects.

    The schedulers are queried only about the user's own runs that are not settled, and once per interval unless the
    answer must be `fresh`. The wait for all schedulers together is at most `patience_s`.
    """
    now_s = time.time() if now_s is None else now_s
    if len(runs) <= FEW:
        known = standing(runs, now_s, keep, fresh=fresh, patience_s=patience_s)
        return [record.view(status, now_s) for record, status in known]
    chosen = [(run, row) for run, row in _with_rows(runs) if not (keep and row) or keep(row)]
    old = {run.folder: view for run, row in chosen if row and (view := ended.kept(row))}
    unread = [run for run, _ in chosen if run.folder not in old]
    # A run that is over is read and kept even if `keep` rejects it, so that it is read only once.
    useful = keep and (lambda record: keep(record) or (isinstance(record, Record) and record.settled))
    known = standing(unread, now_s, useful, fresh=fresh, patience_s=patience_s)
    read = [(record, record.view(status, now_s)) for record, status in known]
    ended.keep(read)
    new = {record.folder.folder: view for record, view in read if not keep or keep(record)}
    return [view for run, _ in chosen if (view := old.get(run.folder) or new.get(run.folder))]


def look(run: RunFolder) -> View:
    """The current view of a run, by its scheduler."""
    return views([run], fresh=True)[0]


def starts(views: Iterable[View], until_s: float = math.inf) -> dict[str, float]:
    """The estimated starts (of time.time()) of those of these runs that wait and belong to this user, by their ids.

    A start that has passed is now. The wait for all schedulers together ends at `until_s` (of time.monotonic()).
    """
    waiting: dict[str, list[Record]] = defaultdict(list)
    for view in views:
        if view.state is State.PENDING and view.job:
            record = read_record(RunFolder(Path(view.folder)))
            if record.mine and record.job and record.scheduler:
                waiting[record.scheduler].append(record)
    known: dict[str, float] = {}
    for name, records in waiting.items():
        with contextlib.suppress(TorusrunError):  # a scheduler that this version does not know
            client = Client(schedulers.get(name), _timeout_s(records), until_s=until_s)
            by_job = answers.starts(client, [record.job for record in records if record.job])
            known |= {each.folder.run_id: by_job[each.job] for each in records if each.job and each.job in by_job}
    return {run: max(start_s, time.time()) for run, start_s in known.items()}


def _timeout_s(records: Sequence[Record]) -> float:
    """The longest time that a command of their scheduler may take."""
    return max(record.plan.command_timeout_s if record.plan else DEFAULT_TIMEOUT_S for record in records)


def _with_rows(runs: Sequence[RunFolder]) -> Iterator[tuple[RunFolder, Settled | None]]:
    """Each run with its kept row, or None if it is not known to be over."""
    known = settled.runs()
    for run in runs:
        row = known.get(run.run_id)
        yield run, row if row and row.text and row.folder == str(run.folder) else None


def standing(
    runs: Sequence[RunFolder],
    now_s: float,
    keep: Callable[[Record | Settled], bool] | None = None,
    *,
    fresh: bool = False,
    patience_s: float = math.inf,
) -> list[tuple[Record, Status]]:
    """The record of every run, and its state, as of `now_s`.

    The wait for all schedulers together is at most `patience_s`.
    """
    read = [record for record in map(read_record, runs) if not keep or keep(record)]
    until_s = time.monotonic() + patience_s
    records, jobs = [], {}
    for record in read:
        known, answer = look_up(record, now_s, until_s)
        records.append(look_up_added(known, now_s, until_s))
        if answer:
            jobs[id(records[-1])] = answer
    jobs.update(_ask([record for record in records if not record.settled and id(record) not in jobs], fresh, until_s))
    states = [_settle(record, jobs.get(id(record)), now_s, until_s) for record in records]
    hooks.seen_over(
        [
            hooks.Over(record.folder, record.attempt, record.plan.notices, status.state, record.events)
            for record, status in states
            if record.mine and status.state.over and record.plan and record.plan.notices
        ]
    )
    return states


def _ask(records: list[Record], fresh: bool, until_s: float) -> dict[int, Status]:
    """The state of each record's job by its scheduler, with one poll per scheduler."""
    by_scheduler: dict[str, list[Record]] = defaultdict(list)
    states: dict[int, Status] = {}
    for record in records:
        if why := unasked(record):
            states[id(record)] = Status(State.UNKNOWN, why)
        elif record.job:
            by_scheduler[record.scheduler].append(record)
    for name, group in by_scheduler.items():
        interval_s = min(record.plan.poll_interval_s if record.plan else POLL_INTERVAL_S for record in group)
        jobs = [job for record in group for job in record.jobs]
        try:
            client = Client(schedulers.get(name), _timeout_s(group), until_s=until_s)
            if fresh:
                note_action(client.scheduler)
            answer = answers.states(client, jobs, interval_s)
        except TorusrunError as error:  # a scheduler that this version does not know
            answer = Answer(time.time(), {job: Status(State.UNKNOWN, str(error)) for job in jobs})
        states.update({id(record): _begun(record, answer) for record in group})
    return states


def _begun(record: Record, answer: Answer) -> Status:
    """The scheduler's answer for a run's job, or RUNNING if the job began after the answer, by its ledger."""
    status = whole(*(answer.jobs[job] for job in record.jobs))
    started = last(record.events, Started, record.attempt)
    if status.state is State.PENDING and started and started.time_s > answer.asked_s:
        return Status(State.RUNNING, hosts=started.hosts)
    return status


def unasked(record: Record) -> str:
    """Why no scheduler is queried about a run; '' if its scheduler is."""
    if record.owner is None:
        return f"{record.folder.folder} is not there, or cannot be read"
    if not record.mine:
        replaceable = record.owner == index.ANYBODY
        whose = "others can replace its folder" if replaceable else f"it belongs to user {record.owner}"
        return f"{whose}, and a scheduler is queried only about your own runs"
    if record.job and not record.scheduler:
        return f"no readable record names the scheduler of its job {record.job}"
    if record.hopeless and not record.end:
        return "its folder has no record of its end or its job; look for a job of its name in the queue"
    return ""


def _settle(record: Record, job: Status | None, now_s: float, until_s: float) -> tuple[Record, Status]:
    """The record and state of a run. An end that only the scheduler knew is recorded: schedulers forget.

    A job may have written while its scheduler was queried. So a run that may be over is read again, alone, and judged
    by this reading, which is newer than the scheduler's answer.
    """
    if record.settled or (job and job.state in (State.PENDING, State.RUNNING)):
        status = _judged(record, job, now_s)
    else:
        with _alone(record) as may_write:
            before, record = record, read_record(record.folder)
            status = _judged(record, job, now_s)
            asked = record.settled or record.jobs == before.jobs
            if may_write and asked and status.state.certain and not record.settled:
                _note(record, status)
        if not asked:  # the answer concerns the jobs of an earlier attempt
            return standing([record.folder], now_s, patience_s=until_s - time.monotonic())[0]
    return record, status


@contextlib.contextmanager
def _alone(record: Record) -> Iterator[bool]:
    """Whether the caller may write into the run: only its user does, and only one process at a time."""
    with contextlib.ExitStack() as held:
        mine = record.mine
        try:
            if mine:
                held.enter_context(alone(record.folder, wait_s=0.0))
        except TorusrunError:  # the next look records what is left
            mine = False
        yield mine


def _judged(record: Record, job: Status | None, now_s: float) -> Status:
    """The state of a run by its record and its scheduler's answer, which is older."""
    status = record.status(in_hold(record, depends.held_forever(record, job)), now_s)
    status = told_by_keeper(record, _blamed_on_the_disk(record, _if_lost(record, status)))
    return next_attempt.status(record.events, record.attempt, status, job) if record.continues else status


def _note(record: Record, status: Status) -> None:
    """Write an end into the ledger."""
    from torusrun.orchestrator.run.bad_nodes.noted import note  # imported late: few looks find an end

    with contextlib.suppress(SiteError):  # a full disk: the scheduler is queried again next time
        if not record.ended:
            own = record.end or End(status.state, status.reason, hosts=status.hosts)  # with more details
            end = replace(own, state=status.state, reason=status.reason, cause=status.cause)
            ledger.append(record.folder.ledger, Ended.by(record.attempt, end))
            note(record.folder, record.attempt, end)
        if record.continues:
            ledger.append(record.folder.ledger, KeptGoing(record.attempt, NO_MORE_JOBS))


def _if_lost(record: Record, status: Status) -> Status:
    """The state of an attempt that seems LOST: still running (UNKNOWN), dropped by its dependency, or LOST.

    Some schedulers forget a job that they dropped before it began.
    """
    if status.state is not State.LOST or not record.mine:
        return status
    attempt = record.folder.attempt(record.attempt)
    if claim.held(attempt):
        lock = attempt.alive.relative_to(record.folder.folder)
        reason = f"its job has left the queue, but processes of its ranks still run: they hold {lock}"
        return Status(State.UNKNOWN, reason)
    unmet = None if last(record.events, Started, record.attempt) else depends.unmet(record.events, record.attempt)
    if unmet and unmet[1]:
        return end_of(How.DROPPED, awaited=unmet[0], state=unmet[1].value).status
    return status


def _blamed_on_the_disk(record: Record, status: Status) -> Status:
    """An end that nothing records: if the disk is full, with that as its likely cause."""
    if not record.mine or not status.state.over or record.ended or not no_room(record.folder.folder):
        return status
    return on_full_disk(status)
