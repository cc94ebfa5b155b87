"""Whether the attempts of a run that keeps going make progress. Pure functions of the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from torusrun.orchestrator.base.states import Cause
from torusrun.orchestrator.folder.events import Ended, Event, GivenBadHosts, Started, Submitting
from torusrun.orchestrator.folder.ledger import last

# Causes outside the program: its launcher, its scheduler, or a host, whose job may have left no record at all.
OUTSIDE = (Cause.LAUNCHER, Cause.SCHEDULER, Cause.HOST_LOST, Cause.UNKNOWN)
NOT_ITS_OWN = (*OUTSIDE, Cause.BAD_HOST, Cause.PREEMPTED)  # causes that say nothing about the run itself
PAUSES_S = (0.0, 5.0, 15.0, 60.0, 180.0, 600.0)  # after the first, second ... attempt in a row that ended outside
MOST_AT_FIRST = 8  # such attempts, if they are all since the submission: nothing shows that others can work
SAME_BAD_HOST = 3  # jobs in a row that a bad host may end before they began anything
Checkpoint = tuple[str | None, float]  # its name, and when it was written if a program may overwrite it (else 0.0)


def in_vain(events: Sequence[Event], attempt: int, newest: Checkpoint, steps: Mapping[int, int] | None = None) -> int:
    """How many attempts in a row, up to `attempt`, made no new checkpoint; `newest` is the newest checkpoint now.

    `steps` has the steps after which attempts began: one that a later attempt continued beyond its own begin, from the
    memory of a node, was not in vain. Only attempts since the user's last submission count, and none that a lost or bad
    host or a preemption ended.
    """
    ends = (last(events, Ended, number) for number in _without_progress(events, attempt, newest, steps or {}))
    return sum(end is None or end.cause not in NOT_ITS_OWN for end in ends)


def _without_progress(
    events: Sequence[Event], attempt: int, newest: Checkpoint, began_after: Mapping[int, int]
) -> Iterator[int]:
    """The attempts in a row, newest first, that made no new checkpoint."""
    later = -1
    for number in attempts_of_submission(events, attempt):
        intent = last(events, Submitting, number)
        if intent is None or (intent.resumes, intent.resumes_s) != newest:
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
        began, end = last(events, Started, number), last(events, Ended, number)
        if end is None or end.cause not in OUTSIDE:
            break
        count += 1
        if began and end.time_s > began.time_s + PAUSES_S[-1]:
            break
    return count


def pause_s(outside: int, ended_s: float, now_s: float) -> float:
    """The time until another attempt may follow: what is broken outside the program needs time to recover.

    `outside` is that of `ended_outside`, `ended_s` the end of the last attempt. Clocks of hosts may differ.
    """
    whole_s = PAUSES_S[min(outside, len(PAUSES_S)) - 1] if outside else 0.0
    return min(max(ended_s + whole_s - now_s, 0.0), whole_s)


def same_error(events: Sequence[Event], attempt: int) -> bool:
    """Whether this attempt and the one before it ended by an error of the program, after the same step and alike.

    If the step is unknown, both must have continued from the same checkpoint.
    """
    two = [*attempts_of_submission(events, attempt)][:2]
    ends = [end for end in (last(events, Ended, number) for number in two) if end and end.cause is Cause.PROGRAM]
    said = {end.evidence.get("said") for end in ends}
    if len(ends) < 2 or len(said) > 1 or None in said or ends[0].step != ends[1].step:
        return False
    begins = [last(events, Submitting, number) for number in two]
    return ends[0].step is not None or len({(one.resumes, one.resumes_s) for one in begins if one}) == 1


def bad_hosts_again(events: Sequence[Event], attempt: int) -> tuple[str, ...]:
    """The bad hosts that ended SAME_BAD_HOST jobs in a row, or more, up to now: each before it started any rank."""
    found: Counter[str] = Counter()
    for number in attempts_of_submission(events, attempt):
        for event in events:
            if isinstance(event, GivenBadHosts) and event.attempt == number:
                found.update({*event.hosts})
        end = last(events, Ended, number)
        if end is None or end.cause is not Cause.BAD_HOST:
            break
        found.update({*end.hosts})
    return tuple(sorted(host for host, times in found.items() if times >= SAME_BAD_HOST))


def ever_began(events: Sequence[Event], attempt: int) -> bool:
    """Whether any attempt since the user's last submission has begun: then its files are right."""
    return any(last(events, Started, number) for number in attempts_of_submission(events, attempt))


def first_of_submission(events: Sequence[Event], attempt: int) -> int:
    """The attempt that was submitted to the scheduler, and that others followed in its jobs, up to `attempt`."""
    return [*attempts_of_submission(events, attempt)][-1]


def attempts_of_submission(events: Sequence[Event], attempt: int) -> Iterator[int]:
    """This attempt and, newest first, those before it that its jobs began since they were submitted."""
    while attempt:
        yield attempt
        intent = last(events, Submitting, attempt)
        attempt = intent.follows if intent and intent.within and intent.follows < attempt else 0
