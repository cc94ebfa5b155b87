"""Shares a scheduler's answers about its user's jobs among all processes of this user on this machine.

The scheduler is queried once per interval, for any number of terminals and runs: the first process that finds the
newest answer too old sends a new query, under a lock, about all jobs that any process has asked about recently. After
the user submits or cancels a job, earlier answers are too old. If the scheduler does not answer, jobs are UNKNOWN, with
their last known state. The files are safe to delete.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base import private, proc
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.process import NoAnswer
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.schedulers import last_action
from torusrun.orchestrator.schedulers.client import Client
from torusrun.training.files import lock

SCHEMA = 2
LARGEST_BYTES = 64_000_000
KEPT_S = 600.0  # how long a job is remembered after the last question about it
OPEN_S = 86_400.0  # the same for a job that was not over in the scheduler's last answer
LONGER = 1.5  # a client that can wait this many times longer than one that got no answer asks again
MINUTES_FROM_S = 120.0  # ages are shown in minutes
LOCK_S = 1.0  # between looks whether the process that holds the lock is stopped


@dataclass(frozen=True)
class Answer:
    """The scheduler's answer at `asked_s` (of time.time()), by job."""

    asked_s: float
    jobs: dict[str, Status]


@dataclass
class Kept:
    """The newest answer as its file has it; `wanted_s` is when each job was last asked about or seen in the queue.

    `told_s` is when the scheduler last answered. `failed` is '', or why it did not answer later, within `waited_s`.
    `named` has the jobs that were found by a name, and when.
    """

    asked_s: float = 0.0
    told_s: float = 0.0
    failed: str = ""
    waited_s: float = 0.0
    jobs: dict[str, Status] = field(default_factory=dict)
    wanted_s: dict[str, float] = field(default_factory=dict)
    named: dict[str, tuple[float, list[str] | None]] = field(default_factory=dict)


def states(client: Client, jobs: Sequence[str], interval_s: float) -> Answer:
    """The states of these jobs, from an answer to any process less than `interval_s` ago, or from a new query.

    If the scheduler is this machine, it is queried each time: that costs no other user anything.
    """
    if not jobs:
        return Answer(time.time(), {})
    if interval_s <= 0 or client.scheduler.traits.one_machine:
        return Answer(time.time(), client.poll(jobs))
    place = last_action.place(client.scheduler)
    kept = _read(place)
    if not _answers(place, kept, jobs, client, interval_s):
        with _locked(place, min(2 * client.timeout_s, client.until_s - time.monotonic())):
            kept = _read(place)
            if not _answers(place, kept, jobs, client, interval_s):
                if not client.left_s:
                    return _answer(kept, jobs, f"another process still waits for {client.scheduler.name} to answer")
                fresh = _holds(place, kept, client, interval_s)
                kept = _asked(client, kept, [*jobs, *last_action.taken_new(place)], fresh=fresh)
                _write(place, kept)
    return _answer(kept, jobs, kept.failed)


def _answer(kept: Kept, jobs: Sequence[str], failed: str) -> Answer:
    """The kept states of these jobs; `failed` says why the scheduler has no newer answer, '' if it did not fail."""
    return Answer(kept.asked_s, {job: _as_known(kept.jobs.get(job), kept.told_s, failed) for job in jobs})


def _as_known(status: Status | None, told_s: float, failed: str) -> Status:
    """A job's state: if the scheduler did not answer, UNKNOWN with the last known state, unless the job is over."""
    if status is None or (status.state is State.UNKNOWN and failed):
        return Status(State.UNKNOWN, failed)
    if status.state.over or not failed:
        return status
    age_s = max(time.time() - told_s, 0.0)
    age = f"{age_s:.0f} s" if age_s < MINUTES_FROM_S else f"{age_s / 60:.0f} min"
    return Status(State.UNKNOWN, f"{status.state.value} as of {age} ago: {failed}", status.hosts)


def named(client: Client, token: str, interval_s: float) -> list[str] | None:
    """The jobs that were submitted with `token`, as `Client.find` returns them, by one query per interval.

    Raises SiteError if the scheduler did not answer.
    """
    if interval_s <= 0 or client.scheduler.traits.one_machine:
        return client.find(token)
    place = last_action.place(client.scheduler)
    with _locked(place, min(2 * client.timeout_s, client.until_s - time.monotonic())):
        kept = _read(place)
        told_s, found = kept.named.get(token, (0.0, None))
        if not _is_fresh(place, told_s, interval_s):
            told_s, found = time.time(), client.find(token)
            recent = {name: old for name, old in kept.named.items() if 0 <= told_s - old[0] < KEPT_S}
            kept.named = {**recent, token: (told_s, found)}
            _write(place, kept)
    return found


def _asked(client: Client, kept: Kept, jobs: Sequence[str], *, fresh: bool) -> Kept:
    """The kept answer, updated by a new query.

    If the whole queue was listed just now, a job that is not in it has left it, and only the records are queried. A
    scheduler that did not answer just now is not queried again.
    """
    now_s = time.time()
    missing = [job for job in jobs if job not in kept.jobs]
    if fresh and kept.failed:
        return _failed(kept, jobs, kept.failed, now_s)
    if fresh and client.scheduler.traits.reports_all_jobs:
        return _with(kept, client.recorded(missing), missing, now_s, kept.asked_s)
    open_jobs = [
        job
        for job, status in kept.jobs.items()
        if not status.state.certain and _is_remembered(status, kept.wanted_s.get(job, 0.0), now_s)
    ]
    final = [job for job in jobs if job in kept.jobs and kept.jobs[job].state.certain]
    wanted = [*dict.fromkeys([*jobs, *open_jobs])]
    waited_s = client.left_s
    try:
        said = client.survey([job for job in wanted if job not in final])
    except NoAnswer as error:
        return _failed(replace(kept, asked_s=time.time(), waited_s=waited_s), jobs, error.brief, now_s)
    except SiteError as error:
        return _failed(replace(kept, asked_s=now_s, waited_s=math.inf), jobs, str(error), now_s)
    return replace(_with(kept, said, jobs, now_s, now_s), told_s=now_s, failed="")


def _failed(kept: Kept, jobs: Sequence[str], why: str, now_s: float) -> Kept:
    """The kept answer, for a scheduler that did not answer: jobs that are not in it are UNKNOWN."""
    unknown = {job: Status(State.UNKNOWN, why) for job in jobs if job not in kept.jobs}
    return replace(_with(kept, unknown, jobs, now_s, kept.asked_s), failed=why)


def _with(kept: Kept, said: dict[str, Status], jobs: Sequence[str], now_s: float, asked_s: float) -> Kept:
    in_queue = [job for job, status in said.items() if not status.state.over]
    wanted_s = {**kept.wanted_s, **dict.fromkeys([*in_queue, *jobs], now_s)}
    every = {job: status for job, status in {**kept.jobs, **said}.items() if job in wanted_s}
    states = {job: status for job, status in every.items() if _is_remembered(status, wanted_s[job], now_s)}
    return replace(kept, asked_s=asked_s, jobs=states, wanted_s={job: wanted_s[job] for job in states})


def _is_remembered(status: Status, wanted_s: float, now_s: float) -> bool:
    return 0 <= now_s - wanted_s < (KEPT_S if status.state.over else OPEN_S)


def _answers(place: Path, kept: Kept, jobs: Sequence[str], client: Client, interval_s: float) -> bool:
    return _holds(place, kept, client, interval_s) and all(job in kept.jobs for job in jobs)


def _holds(place: Path, kept: Kept, client: Client, interval_s: float) -> bool:
    """Whether the kept answer still holds. A missing answer does not hold for a client that can wait longer."""
    return _is_fresh(place, kept.asked_s, interval_s) and not (kept.failed and client.left_s > LONGER * kept.waited_s)


def _is_fresh(place: Path, asked_s: float, interval_s: float) -> bool:
    """Whether an answer of that time still holds: it is not too old, and the user has done nothing since.

    If the clock was set back, the user's last action seems to be in the future; it then makes no answer too old.
    """
    now_s = time.time()
    return 0 <= now_s - asked_s < interval_s and not asked_s <= last_action.last_s(place) <= now_s


def _read(place: Path) -> Kept:
    """The newest answer; an empty one if there is none, or it cannot be read."""
    try:
        content = json.loads(private.read_bytes(place, LARGEST_BYTES))
        if content["schema"] != SCHEMA:
            return Kept()
        jobs = {job: _status(*row) for job, (_, *row) in content["jobs"].items()}
        wanted_s = {job: float(row[0]) for job, row in content["jobs"].items()}
        found = {token: (float(told_s), ids) for token, (told_s, ids) in content["named"].items()}
        failed = str(content["failed"]), float(content["waited_s"])
        return Kept(float(content["asked_s"]), float(content["told_s"]), *failed, jobs, wanted_s, found)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return Kept()


def _status(state: str, reason: str, hosts: list[str], never_starts: bool, held: bool) -> Status:
    return Status(State(state), reason, tuple(hosts), never_starts, held)


def _write(place: Path, kept: Kept) -> None:
    rows: dict[str, list[Any]] = {
        job: [kept.wanted_s[job], s.state.value, s.reason, s.hosts, s.never_starts, s.held]
        for job, s in kept.jobs.items()
    }
    newest = {"asked_s": kept.asked_s, "told_s": kept.told_s, "failed": kept.failed, "waited_s": kept.waited_s}
    content = {"schema": SCHEMA, **newest, "jobs": rows, "named": kept.named}
    with contextlib.suppress(OSError):  # a full disk: the next process sends its own query
        private.write_bytes(place, json.dumps(content).encode())


@contextmanager
def _locked(place: Path, wait_s: float) -> Iterator[None]:
    """Hold the lock of a cluster's answers, if there can be one; its file names the process that has it.

    After `wait_s`, or if that process is stopped, the caller continues without the lock.
    """
    try:
        private.make(place.parent)
        descriptor = lock.opened(place.with_suffix(".lock"))
    except (SiteError, OSError):  # a home folder that cannot be written to
        yield
        return
    until_s = time.monotonic() + wait_s
    mine = None
    try:
        with contextlib.suppress(OSError):
            while (mine := lock.take(descriptor, wait_s=min(LOCK_S, wait_s))) is False:
                if time.monotonic() >= until_s or _is_stopped(descriptor):
                    break
        if mine:
            with contextlib.suppress(OSError):  # a full disk
                os.ftruncate(descriptor, os.pwrite(descriptor, str(os.getpid()).encode(), 0))
        yield
    finally:
        os.close(descriptor)


def _is_stopped(descriptor: int) -> bool:
    """Whether the process that a lock's file names is stopped, as by Ctrl-Z."""
    pid = os.pread(descriptor, 20, 0)
    return pid.isdigit() and proc.state_of(int(pid)) == "T"
