"""Where the time of a run went: a partition of the time since its first submission. A pure function of its records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.base.states import Cause
from orchestrator.runs.folder.events import Ended, Event, Refused, Started, Submitted, Submitting
from training.reporting import events as rows_of

QUEUE, START, COMPUTE, EVALUATION, CHECKPOINTS, LOST, HANG, STOPPING, UNREPORTED, IDLE = USES = (
    "queue",  # from the submission of an attempt to its start
    "start",  # from its start to its first step
    "compute",  # steps that count
    "evaluation",
    "checkpoints",  # all ranks waited for a save; its writing beside the training is not part of it
    "lost",  # steps that a later attempt computed again
    "hang",  # from the last step to the end of an attempt that hung
    "stopping",  # from the last step to the end of any other attempt
    "unreported",  # from the start to the end of an attempt that reported no step
    "idle",  # no attempt was submitted
)
PRODUCTIVE = (COMPUTE, EVALUATION)
LEAST_SHARE = 0.01
LONGEST_S = 1e6  # of a checkpoint
OF_ROWS = {rows_of.EVAL: EVALUATION, rows_of.START: START}

# What would have saved the time of a use.
CURES = {
    QUEUE: "`torusrun hold` keeps an allocation, in which attempts start without the queue",
    START: "a smaller image and fewer imports start sooner, and longer attempts (`time`) start less often",
    CHECKPOINTS: "leave the interval to torusrun (no `train.checkpoint_every_steps`), or save less often",
    LOST: "save more often (`train.checkpoint_every_steps`, or a shorter `mean_time_to_failure` of the site's nodes)",
    HANG: "a shorter `hang_timeout` ends a hang earlier",
    IDLE: "resume it sooner after its end",
}


@dataclass(frozen=True)
class Account:
    """Seconds by use, in the order of USES; `waited_s` is the time from the first submission to the first start."""

    seconds: Mapping[str, float]
    waited_s: float

    @property
    def total_s(self) -> float:
        """The time from the first submission to the end, or to now."""
        return sum(self.seconds.values())

    @property
    def productive_s(self) -> float:
        return sum(self.seconds[use] for use in PRODUCTIVE)

    @property
    def ettr(self) -> float | None:
        """The effective training time ratio: productive time by the time since the first start; None without steps.

        Source: Meta, "Revisiting Reliability in Large-Scale Machine Learning Research Clusters", arXiv 2410.21680,
        section 3 (definition from memory; there without evaluations, which count as productive here).
        """
        since_s = self.total_s - self.waited_s
        return self.productive_s / since_s if since_s > 0 and self.productive_s > 0 else None

    @property
    def cure(self) -> str:
        """What would have saved most; '' if that is less than LEAST_SHARE of the time."""
        use = max(CURES, key=lambda use: self.seconds[use])
        return f"{use}: {CURES[use]}" if self.seconds[use] > LEAST_SHARE * self.total_s else ""

    def as_json(self) -> dict[str, Any]:
        since = {"since_submit": self.productive_s / self.total_s if self.total_s > 0 else None, "ettr": self.ettr}
        return {"seconds": {use: round(self.seconds[use], 3) for use in USES}, **since, "cure": self.cure}


@dataclass
class _Attempt:
    submitted_s: float
    begun_s: float | None = None
    end: Ended | None = None
    rows: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def last_s(self) -> float:
        """The last time that its records name."""
        return max([self.submitted_s, self.begun_s or 0.0, *(float(row["t"]) for row in self.rows)])


def account(events: Sequence[Event], rows: Sequence[Mapping[str, Any]], now_s: float, *, over: bool) -> Account:
    """The account of a run by its ledger and its metrics, as of `now_s` (of time.time()), or as of its end if `over`.

    Times come from several clocks. One that lies before its predecessor counts as equal to it, so that the uses always
    add up to the time from the first to the last. A run that is over without a record of its end ended at its last row.
    """
    attempts = _attempts(events, rows)
    seconds = dict.fromkeys(USES, 0.0)
    first_s = at_s = next((one.submitted_s for one in attempts), now_s)
    for use, until_s in _spans(attempts, now_s, over):
        seconds[use] += max(until_s - at_s, 0.0)
        at_s = max(at_s, until_s)
    begun_s = next((one.begun_s for one in attempts if one.begun_s is not None), at_s)
    return Account(seconds, max(begun_s - first_s, 0.0))


def _attempts(events: Sequence[Event], rows: Sequence[Mapping[str, Any]]) -> list[_Attempt]:
    """The attempts by number, without those that the scheduler refused."""
    found: dict[int, _Attempt] = {}
    for event in events:
        if isinstance(event, Refused):
            found.pop(event.attempt, None)
        elif isinstance(event, (Submitting, Submitted, Started)):
            one = found.setdefault(event.attempt, _Attempt(event.time_s))
            if isinstance(event, Started) and one.begun_s is None:
                one.begun_s = event.time_s
        elif isinstance(event, Ended) and event.attempt in found:
            found[event.attempt].end = found[event.attempt].end or event
    for row in rows:
        if row.get("attempt") in found and type(row.get("t")) in (int, float):
            found[row["attempt"]].rows.append(row)
    return [found[number] for number in sorted(found)]


def _spans(attempts: Sequence[_Attempt], now_s: float, over: bool) -> Iterator[tuple[str, float]]:
    """(use, its end in time), in the order of time from the first submission on."""
    for n, one in enumerate(attempts):
        last = n + 1 == len(attempts)
        if one.end:
            until_s = one.end.time_s
        elif last:
            until_s = one.last_s if over else now_s
        else:
            until_s = attempts[n + 1].submitted_s
        yield IDLE, one.submitted_s
        yield QUEUE, until_s if one.begun_s is None else one.begun_s
        if one.begun_s is not None:
            for use, row_s in _steps(one.rows, _continued_from(attempts[n + 1 :])):
                yield use, min(row_s, until_s)
            yield _last(one, is_over=not last or over or one.end is not None), until_s


def _last(one: _Attempt, *, is_over: bool) -> str:
    """The use of the time after the last row of an attempt."""
    if not any(row["event"] == rows_of.STEP for row in one.rows):
        return UNREPORTED if is_over else START
    if not is_over:
        return COMPUTE
    return HANG if one.end and one.end.cause is Cause.HANG else STOPPING


def _continued_from(later: Sequence[_Attempt]) -> float:
    """The step from which the next attempt with steps continued; infinite without one."""
    rows = (row for one in later for row in one.rows if type(row.get("step")) is int)
    first = next(rows, None)
    return float("inf") if first is None else float(first["step"] - (first["event"] != rows_of.START))


def _steps(rows: Sequence[Mapping[str, Any]], continued_from: float) -> Iterator[tuple[str, float]]:
    """The spans of an attempt's rows. A span after the step from which the next attempt continued is lost."""
    has_steps = False
    for row in rows:
        use = OF_ROWS.get(row["event"], COMPUTE) if has_steps else START
        has_steps = has_steps or row["event"] == rows_of.STEP
        if use != START and type(row.get("step")) is int and row["step"] > continued_from:
            use = LOST
        if row["event"] == rows_of.CHECKPOINT and use != LOST:
            yield use, row["t"] - _seconds(row)
            use = CHECKPOINTS
        yield use, row["t"]


def _seconds(row: Mapping[str, Any]) -> float:
    """How long a checkpoint took; 0.0 if the row does not say it."""
    found = row.get("seconds")
    return found if type(found) in (int, float) and 0 <= found <= LONGEST_S else 0.0  # type: ignore[operator,return-value]
