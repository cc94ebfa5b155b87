"""What follows an attempt without its user: its later jobs, whether another attempt is in vain, the state until then.

Pure functions of the ledger.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.states import Cause, State, Status
from torusrun.orchestrator.run.folder.events import (
    CancelRequested,
    Changes,
    Ended,
    Event,
    GivenBadHosts,
    JobAdded,
    KeptGoing,
    NoMoreJobs,
    Started,
    Submitted,
    Submitting,
)
from torusrun.orchestrator.run.folder.ledger import last
from torusrun.orchestrator.run.state.decide import More, Stop, more
from torusrun.training.counted import counted

if TYPE_CHECKING:  # `status` makes no plan
    from torusrun.orchestrator.run.plan.plan import Plan

# Causes outside the program: its launcher, its scheduler, or a host, whose job may have left no record at all.
OUTSIDE = (Cause.LAUNCHER, Cause.SCHEDULER, Cause.HOST_LOST, Cause.UNKNOWN)
NOT_ITS_OWN = (*OUTSIDE, Cause.BAD_HOST, Cause.PREEMPTED)  # causes that say nothing about the run itself
PAUSES_S = (0.0, 5.0, 15.0, 60.0, 180.0, 600.0)  # after the first, second ... attempt in a row that ended outside
MOST_AT_FIRST = 8  # such attempts, if the submission has no others: nothing shows that another attempt can work
SAME_BAD_HOST = 3  # jobs in a row that a bad host may end before they began anything
Checkpoint = tuple[str | None, str]  # its name, and a checksum of its content if a program may overwrite it (else '')
MOST_ALIKE = 3  # errors in a row that count as the same, although files in the folder of checkpoints changed
# What differs between two errors at the same place: addresses, paths, long identifiers and numbers.
VARYING = re.compile(r"0x[0-9a-fA-F]+|(?<![\w.])/[^\s'\":,;)]+|\b(?=\w*\d)[0-9a-fA-F]{8,}\b|\d+")
EXCEPTION = re.compile(r"(?:^|\s)([A-Za-z_][\w.]*)(?::|$)")  # perhaps behind the rank, or behind words of torchrun
WAITS = "the next waits in the queue"
BEGINS = "the next begins"


def may_begin_another(events: Sequence[Event], attempt: int) -> bool:
    """Whether another attempt may follow this attempt without its user, by the ledger."""
    intent, seen = last(events, Submitting, attempt), last(events, Ended, attempt)
    done = seen is not None and seen.state is State.COMPLETED
    return bool(intent and intent.jobs) and not done and last(events, KeptGoing, attempt) is None


def jobs_of(events: Sequence[Event], attempt: int) -> tuple[str, ...]:
    """The jobs that were submitted with an attempt, or with the first that it follows, in turn; an array is one job."""
    first = first_of_submission(events, attempt)
    submitted = last(events, Submitted, first)
    added = [event.job for event in events if isinstance(event, JobAdded) and event.attempt == first]
    return (*((submitted.job,) if submitted else ()), *added)


def lacks_jobs(events: Sequence[Event], attempt: int) -> bool:
    """Whether the submission of an attempt continues or was cut off: it has fewer jobs than were requested."""
    first = first_of_submission(events, attempt)
    intent = last(events, Submitting, first)
    in_turn = intent is not None and intent.in_turn and last(events, NoMoreJobs, first) is None
    return in_turn and intent is not None and len(jobs_of(events, first)) < intent.jobs


def later_jobs(events: Sequence[Event], attempt: int, job: str) -> tuple[str, ...]:
    """The jobs of the submission of an attempt that begin after `job`."""
    every = jobs_of(events, attempt)
    return every[every.index(job) + 1 :] if job in every else ()


def submitted_s(events: Sequence[Event], attempt: int) -> float | None:
    """When an attempt was submitted, or the first that it follows without the user; None if unknown.

    It is a time of time.time().
    """
    intent = last(events, Submitting, attempt)
    first = first_of_submission(events, attempt) if intent and intent.jobs else attempt
    return next((event.time_s for event in events if event.attempt == first), None)


def first_of_submission(events: Sequence[Event], attempt: int) -> int:
    """The attempt that was submitted to the scheduler, and that others followed in its jobs, up to `attempt`."""
    return [*attempts_of_submission(events, attempt)][-1]


def attempts_of_submission(events: Sequence[Event], attempt: int) -> Iterator[int]:
    """This attempt and, newest first, those before it that its jobs began since they were submitted."""
    while attempt:
        yield attempt
        intent = last(events, Submitting, attempt)
        attempt = intent.follows if intent and intent.by and intent.follows < attempt else 0


def hopeless(
    events: Sequence[Event], attempt: int, newest: Checkpoint, steps: Mapping[int, int], most_in_vain: int
) -> Stop | None:
    """Why another attempt would be in vain after this attempt, whose end is in the ledger; None if it may succeed.

    `newest` and `steps` are those of `in_vain`.
    """
    end, count = last(events, Ended, attempt), in_vain(events, attempt, newest, steps)
    if end and end.cause is Cause.INTERNAL:
        return Stop("a defect of torusrun ended it, and would end another attempt")
    if same_error(events, attempt):
        return Stop("two attempts in a row failed after the same step with the same error")
    if end and end.cause is Cause.SCHEDULER:
        return Stop("its dependency dropped it")
    if end and end.cause in (Cause.CONFIGURATION, Cause.IMAGE) and not ever_began(events, attempt):
        return Stop("another attempt would fail in the same way")
    if hosts := bad_hosts_again(events, attempt):
        named = f"{'host' if len(hosts) == 1 else 'hosts'} {', '.join(hosts)}"
        return Stop(f"the bad {named} ended {SAME_BAD_HOST} jobs in a row before any rank started", hosts=hosts)
    outside, all_since = ended_outside(events, attempt, newest, steps), len([*attempts_of_submission(events, attempt)])
    if outside >= max(MOST_AT_FIRST, all_since):
        return Stop(f"each of its {MOST_AT_FIRST} attempts or more was ended by its launcher, its scheduler or a host")
    why = f"{counted(count, 'attempt')} in a row made no new checkpoint (keep_going.without_progress)"
    return Stop(why) if count >= most_in_vain else None


def in_vain(events: Sequence[Event], attempt: int, newest: Checkpoint, steps: Mapping[int, int] | None = None) -> int:
    """How many attempts in a row, up to `attempt`, made no new checkpoint; `newest` is the newest checkpoint now.

    `steps` has the steps after which attempts began: an attempt was not in vain if a later attempt continued, from the
    memory of a node, beyond the step at which it began. Only attempts since the user's last submission count, and none
    that a lost or bad host or a preemption ended.
    """
    ends = (last(events, Ended, number) for number in _without_progress(events, attempt, newest, steps or {}))
    return sum(end is None or end.cause not in NOT_ITS_OWN for end in ends)


def more_after(
    events: Sequence[Event], plan: Plan, attempt: int, newest: Checkpoint, steps: Mapping[int, int]
) -> More | None:
    """What the attempt after this attempt, which had this plan, asks for more of; `newest` and `steps` of `in_vain`."""
    end, grow, site_most = last(events, Ended, attempt), plan.run.keep_going.grow, plan.site.most
    if end and end.cause is Cause.OUT_OF_MEMORY:
        limits = (grow.most.memory_bytes, site_most.memory_bytes)
        asked = plan.site.request.memory_of(plan.most_ranks_on_a_node)
        return more("memory", asked, grow.memory, min(filter(None, limits), default=0))
    vain = attempt in _without_progress(events, attempt, newest, steps)
    if end and end.cause is Cause.TIME_LIMIT and vain:
        limits_s = (grow.most.time_s, site_most.time_s)
        return more("time", plan.run.time_s, grow.time, min(filter(None, limits_s), default=0))
    return None


def changes_for(wanted: More | None) -> Changes:
    """The changes of an attempt that asks for more."""
    if wanted is None:
        return Changes()
    return Changes(memory_bytes=int(wanted.amount)) if wanted.what == "memory" else Changes(time_s=wanted.amount)


def _without_progress(
    events: Sequence[Event], attempt: int, newest: Checkpoint, began_after: Mapping[int, int]
) -> Iterator[int]:
    """The attempts in a row, newest first, that made no new checkpoint."""
    later = -1
    for number in attempts_of_submission(events, attempt):
        intent = last(events, Submitting, number)
        if intent is None or (intent.resumes, intent.resumes_content) != newest:
            break
        if later > began_after.get(number, later):
            break
        later = max(later, began_after.get(number, later))
        yield number


def ended_outside(
    events: Sequence[Event], attempt: int, newest: Checkpoint, steps: Mapping[int, int] | None = None
) -> int:
    """How many attempts in a row, up to `attempt`, ended outside the program, soon and without a new checkpoint."""
    count = 0
    for number in _without_progress(events, attempt, newest, steps or {}):
        end = last(events, Ended, number)
        if end is None or end.cause not in OUTSIDE:
            break
        count += 1
        if not _was_short(events, number):
            break
    return count


def pause_s(outside: int, ended_s: float, now_s: float) -> float:
    """The time until another attempt may follow: what is broken outside the program needs time to recover.

    `outside` is that of `ended_outside`, `ended_s` the end of the last attempt. Clocks of hosts may differ.
    """
    whole_s = PAUSES_S[min(outside, len(PAUSES_S)) - 1] if outside else 0.0
    return min(max(ended_s + whole_s - now_s, 0.0), whole_s)


def same_error(events: Sequence[Event], attempt: int) -> bool:
    """Whether this attempt and the attempt before it ended by the same error of the program, after the same step.

    If the step is unknown, both must have continued from the same checkpoint, or a third attempt ended so before them,
    and all three soon: what a program writes at its start is no progress.
    """
    alike = [*_alike(events, attempt)][:MOST_ALIKE]
    if len(alike) < 2:
        return False
    begins = [last(events, Submitting, number) for number in alike[:2]]
    known = (end := last(events, Ended, attempt)) is not None and end.step is not None
    same_checkpoint = len({(begin.resumes, begin.resumes_content) for begin in begins if begin}) == 1
    return known or same_checkpoint or (len(alike) == MOST_ALIKE and all(_was_short(events, n) for n in alike))


def _alike(events: Sequence[Event], attempt: int) -> Iterator[int]:
    """This attempt and, newest first, those before it that ended in a row by the same error after the same step."""
    first = last(events, Ended, attempt)
    for number in attempts_of_submission(events, attempt):
        end = last(events, Ended, number)
        if not (first and end and end.cause is Cause.PROGRAM and end.step == first.step and _error(end)):
            return
        if _error(end) != _error(first):
            return
        yield number


def _error(end: Ended) -> str:
    """The type and place of an error, or else its text, without what varies; '' if it is not known."""
    line, place = end.evidence.get("said", ""), end.evidence.get("place", "")
    kind = EXCEPTION.search(line)
    return f"{kind[1]} at {place}" if kind and place else VARYING.sub("#", line)


def _was_short(events: Sequence[Event], attempt: int) -> bool:
    """Whether an attempt ended soon after it had begun, or before."""
    began, end = last(events, Started, attempt), last(events, Ended, attempt)
    return not began or (end is not None and end.time_s < began.time_s + PAUSES_S[-1])


def bad_hosts_again(events: Sequence[Event], attempt: int) -> tuple[str, ...]:
    """The bad hosts that ended SAME_BAD_HOST jobs in a row, or more, up to now: each before it started any rank."""
    times_bad: Counter[str] = Counter()
    for number in attempts_of_submission(events, attempt):
        for event in events:
            if isinstance(event, GivenBadHosts) and event.attempt == number:
                times_bad.update({*event.hosts})
        end = last(events, Ended, number)
        if end is None or end.cause is not Cause.BAD_HOST:
            break
        times_bad.update({*end.hosts})
    return tuple(sorted(host for host, times in times_bad.items() if times >= SAME_BAD_HOST))


def ever_began(events: Sequence[Event], attempt: int) -> bool:
    """Whether any attempt since the user's last submission has begun: then its files are right."""
    return any(last(events, Started, number) for number in attempts_of_submission(events, attempt))


def status(events: Sequence[Event], attempt: int, own: Status, job: Status | None) -> Status:
    """The state of a run that may begin another attempt: `own` is that of this attempt, `job` that of its jobs."""
    if not own.state.over or last(events, CancelRequested, attempt):
        return own
    before = f"attempt {attempt} is {own.state.value}: {own.reason}"
    if job is None or job.state is State.UNKNOWN:
        why = job.reason if job else "the state of its jobs is not known"
        return Status(State.UNKNOWN, f"{before}; whether another attempt follows is not known: {why}")
    if job.state.over and lacks_jobs(events, attempt):
        return Status(State.UNKNOWN, f"{before}; whether another job was submitted is not known yet")
    if job.state.over:
        return own
    follows = WAITS if job.state is State.PENDING else BEGINS
    return Status(job.state, "; ".join(filter(None, (before, follows, job.reason))), never_starts=job.never_starts)


def at_the_end(events: Sequence[Event], attempt: int, own: Status) -> Status:
    """The state of an attempt that is over, with the reason why no further attempt followed."""
    closed = last(events, KeptGoing, attempt)
    if closed is None or not own.state.over or own.state is State.COMPLETED:
        return own
    ended = replace(own, reason=f"{own.reason}; no further attempt: {closed.why}")
    if closed.cancelled:
        return replace(ended, state=State.CANCELLED, cause=Cause.STOPPED)
    if closed.hosts:
        return replace(ended, state=Cause.BAD_HOST.state, cause=Cause.BAD_HOST, hosts=closed.hosts)
    return ended
