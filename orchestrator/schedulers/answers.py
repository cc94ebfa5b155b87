"""Shares a scheduler's answers about its user's jobs among all processes of this user on this machine.

One file per cluster has the newest answers, each with a lifetime. A process that needs a newer answer queries the
scheduler, under a lock, about all jobs that any process has asked about recently. After the user submits or cancels a
job, earlier states are too old. If the scheduler does not answer, jobs are UNKNOWN, with their last known state. The
files may be deleted.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from torusrun.orchestrator.base import lock, private
from torusrun.orchestrator.base.errors import SiteError, TorusrunError
from torusrun.orchestrator.base.json_files import parsed
from torusrun.orchestrator.base.process import NoAnswer
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.base.typed import record_of
from torusrun.orchestrator.schedulers.client import Client, answers_file

LARGEST_BYTES = 64_000_000
KEPT_S = 600.0  # how long a job is remembered after the last question about it
MINUTES_FROM_S = 120.0  # ages are shown in minutes
STARTS_EVERY_S = 300.0  # schedulers plan anew every half a minute to several minutes, and an estimate is expensive
STARTS_LEAST_S = 60.0  # between two queries for starts, also if a job is new
NONE_S = 0.0  # in place of a start that the scheduler does not estimate


@dataclass(frozen=True)
class Answer:
    """The scheduler's answer at `asked_s` (of time.time()), by job."""

    asked_s: float
    jobs: dict[str, Status]


@dataclass(frozen=True)
class Kept:
    """The newest answers as their file has them. All times are of time.time()."""

    asked_s: float = 0.0  # when the scheduler was last queried for states
    told_s: float = 0.0  # when it last answered
    failed: str = ""  # why it did not answer the last query
    mark: str = ""  # the user's last action before the last query
    jobs: dict[str, Status] = field(default_factory=dict)
    wanted_s: dict[str, float] = field(default_factory=dict)  # when each job was last asked about
    named: dict[str, tuple[float, Sequence[str] | None]] = field(default_factory=dict)  # jobs by the name of a request
    starts: dict[str, tuple[float, float]] = field(default_factory=dict)  # by job: when queried, its start

    def holds(self, jobs: Sequence[str], mark: str, interval_s: float) -> bool:
        """True if the states of these jobs need no new query."""
        fresh = self.mark == mark and _is_younger(self.asked_s, interval_s)
        return fresh and (bool(self.failed) or all(job in self.jobs for job in jobs))


def states(client: Client, jobs: Sequence[str], interval_s: float) -> Answer:
    """The states of these jobs, from an answer to any process less than `interval_s` ago, or from a new query.

    If the scheduler is this machine, it is queried each time: that costs no other user anything.
    """
    if not jobs:
        return Answer(time.time(), {})
    if interval_s <= 0 or client.scheduler.traits.one_machine:
        return Answer(time.time(), client.poll(jobs))
    place = answers_file(client.scheduler)
    try:
        kept = _shared(
            client,
            lambda kept: kept.holds(jobs, last_mark(place), interval_s),
            lambda kept: _asked(client, replace(kept, mark=last_mark(place)), jobs),
        )
    except NoAnswer as error:
        return _answer(_read(place), jobs, str(error))
    return _answer(kept, jobs, kept.failed)


def _shared(client: Client, holds: Callable[[Kept], bool], ask: Callable[[Kept], Kept]) -> Kept:
    """The kept answers if they hold, else those after a query. Raises NoAnswer if no time is left for that."""
    place = answers_file(client.scheduler)
    kept = _read(place)
    if holds(kept):
        return kept
    with _locked(place, client):
        kept = _read(place)  # another process may have asked meanwhile
        if not holds(kept):
            if not client.left_s:
                raise NoAnswer(f"another process still waits for {client.scheduler.name} to answer")
            kept = ask(kept)
            _write(place, kept)
    return kept


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


def _asked(client: Client, kept: Kept, jobs: Sequence[str]) -> Kept:
    """The kept answer, updated by a new query about these jobs and all that are remembered and may change."""
    now_s = time.time()
    wanted_s = {job: s for job, s in kept.wanted_s.items() if 0 <= now_s - s < KEPT_S} | dict.fromkeys(jobs, now_s)
    known = {job: status for job, status in kept.jobs.items() if job in wanted_s}
    try:
        answer = client.survey([job for job in wanted_s if job not in known or not known[job].state.certain])
    except SiteError as error:
        why = error.brief if isinstance(error, NoAnswer) else str(error)
        return replace(kept, asked_s=time.time(), failed=why, jobs=known, wanted_s=wanted_s)
    seen = {job: now_s for job, status in answer.items() if not status.state.over}  # all jobs in the queue
    every = {**known, **answer}
    wanted_s = {**seen, **wanted_s}
    jobs_now = {job: every[job] for job in wanted_s if job in every}
    return replace(kept, asked_s=now_s, told_s=now_s, failed="", jobs=jobs_now, wanted_s=wanted_s)


def named(client: Client, token: str, interval_s: float) -> Sequence[str] | None:
    """The jobs that were submitted with `token`, as `Client.find` returns them, by one query per interval.

    Raises SiteError if the scheduler did not answer.
    """
    if interval_s <= 0 or client.scheduler.traits.one_machine:
        return client.find(token)
    place = answers_file(client.scheduler)

    def ask(kept: Kept) -> Kept:
        now_s, ids = time.time(), client.find(token)
        recent = {name: old for name, old in kept.named.items() if 0 <= now_s - old[0] < KEPT_S}
        return replace(kept, named={**recent, token: (now_s, ids)})

    def holds(kept: Kept) -> bool:
        return kept.mark == last_mark(place) and _is_younger(kept.named.get(token, (0.0, None))[0], interval_s)

    return _shared(client, holds, ask).named[token][1]


def starts(client: Client, jobs: Sequence[str]) -> Mapping[str, float]:
    """The estimated starts of waiting jobs (of time.time()), without jobs that the scheduler has no estimate for.

    If it fails to answer, it has none, and is not queried again within the interval.
    """
    if not jobs or not client.estimates_starts:
        return {}

    def holds(kept: Kept) -> bool:
        asked_s = {job: asked_s for job, (asked_s, _) in kept.starts.items()}
        return all(job in asked_s and _is_younger(asked_s[job], STARTS_EVERY_S) for job in jobs) or any(
            _is_younger(each_s, STARTS_LEAST_S) for each_s in asked_s.values()
        )

    def ask(kept: Kept) -> Kept:
        estimated: Mapping[str, float] = {}
        with contextlib.suppress(SiteError):
            estimated = client.starts(jobs)
        now_s = time.time()
        recent = {job: old for job, old in kept.starts.items() if _is_younger(old[0], STARTS_EVERY_S)}
        return replace(kept, starts={**recent, **{job: (now_s, estimated.get(job, NONE_S)) for job in jobs}})

    try:
        kept = _shared(client, holds, ask).starts
    except NoAnswer:
        kept = _read(answers_file(client.scheduler)).starts
    return {job: kept[job][1] for job in jobs if kept.get(job, (0.0, NONE_S))[1] != NONE_S}


def _is_younger(time_s: float, age_s: float) -> bool:
    return 0 <= time.time() - time_s < age_s


def last_mark(place: Path) -> str:
    """The mark of the user's last action; '' without an action."""
    try:
        return private.read_bytes(place.with_suffix(".acted"), 100).decode(errors="replace")
    except OSError:
        return ""


def _read(place: Path) -> Kept:
    """The newest answers; `Kept()` if no file has them, or it cannot be read."""
    try:
        kept: Kept = record_of(Kept, parsed(private.read_bytes(place, LARGEST_BYTES)), str)
    except (OSError, ValueError):
        return Kept()
    return kept


def _write(place: Path, kept: Kept) -> None:
    with contextlib.suppress(OSError):  # a full disk: the next process sends its own query
        private.write_bytes(place, json.dumps(asdict(kept)).encode())


@contextmanager
def _locked(place: Path, client: Client) -> Iterator[None]:
    """Hold the lock of a cluster's answers. Whoever waits for longer than its query may take continues without it."""
    with ExitStack() as stack:
        with contextlib.suppress(TorusrunError, OSError):  # a home folder that cannot be written to
            private.make(place.parent)
            wait_s = min(2 * client.timeout_s, client.until_s - time.monotonic())
            stack.enter_context(lock.held(place.with_suffix(".lock"), wait_s=max(wait_s, 0.0)))
        yield
