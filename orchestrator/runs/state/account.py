"""Where the time of a run went: a partition of the time since its first submission. A pure function of its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.base.states import Cause
from orchestrator.runs.folder.events import Ended, Event, Started, Submitted, Submitting
from training.reporting import events as rows_of

QUEUE, START, COMPUTE, EVALUATION, CHECKPOINTS, LOST, HANG, STOPPING, UNREPORTED, IDLE = USES = (
    "queue",  # from the submission of an attempt to its start
    "start",  # from its start to its first step
    "compute",  # steps that count
    "evaluation",
    "checkpoints",  # all ranks waited while rank 0 wrote
    "lost",  # steps that a later attempt computed again
    "hang",  # from the last step to the end of an attempt that hung
    "stopping",  # from the last step to the end of any other attempt
    "unreported",  # from the start to the end of an attempt that reported no step
    "idle",  # no attempt was submitted
)
PRODUCTIVE = (COMPUTE, EVALUATION)
LEAST_SHARE = 0.01
OF_ROWS = {rows_of.EVAL: EVALUATION, rows_of.START: START}

# What would have saved the time of a use.
CURES = {
    QUEUE: "`torusrun hold` keeps an allocation, in which attempts start without the queue",
    START: "longer attempts (`time`) start less often",
    CHECKPOINTS: "save less often (`train.checkpoint_every_steps`)",
    LOST: "save more often (`train.checkpoint_every_steps`)",
    HANG: "a shorter `hang_timeout` ends a hang earlier",
    IDLE: "resume sooner: `torusrun watch RUN || torusrun resume RUN`",
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


def account(events: Sequence[Event], rows: Sequence[Mapping[str, Any]], now_s: float) -> Account:
    """The account of a run by its ledger and its metrics, as of `now_s` (of time.time()), or as of its end.

    Times come from several clocks. One that lies before its predecessor counts as equal to it, so that the uses always
    add up to the time from the first to the last.
    """
    spans = [*_spans(events, rows, now_s)]
    seconds = dict.fromkeys(USES, 0.0)
    at_s = begun_s = spans[0][1] if spans else now_s
    first_s = next((until_s for use, until_s in spans[1:] if use == QUEUE), at_s)
    for use, until_s in spans:
        seconds[use] += max(until_s - at_s, 0.0)
        at_s = max(at_s, until_s)
    return Account(seconds, max(first_s - begun_s, 0.0))


def _spans(events: Sequence[Event], rows: Sequence[Mapping[str, Any]], now_s: float) -> list[tuple[str, float]]:
    """(use, its end in time) in the order of time; the first one only gives the beginning."""
    spans: list[tuple[str, float]] = []
    submitted = {e.attempt: e.time_s for e in reversed(events) if isinstance(e, (Submitting, Submitted, Started))}
    attempts = sorted(submitted)
    for n, number in enumerate(attempts):
        begun = next((e.time_s for e in events if isinstance(e, Started) and e.attempt == number), None)
        end = next((e for e in events if isinstance(e, Ended) and e.attempt == number), None)
        over_s = end.time_s if end else None
        if over_s is None and n + 1 < len(attempts):
            over_s = submitted[attempts[n + 1]]
        until_s = now_s if over_s is None else over_s
        spans.append((IDLE, submitted[number]))
        spans.append((QUEUE, until_s if begun is None else begun))
        if begun is not None:
            own = [row for row in rows if row.get("attempt") == number and type(row.get("t")) in (int, float)]
            spans += _steps(own, _continued_from(rows, number))
            spans.append((_last(end, own, is_over=over_s is not None), until_s))
    return spans


def _last(end: Ended | None, rows: Sequence[Mapping[str, Any]], *, is_over: bool) -> str:
    """The use of the time after the last row of an attempt."""
    if not any(row["event"] == rows_of.STEP for row in rows):
        return UNREPORTED if is_over else START
    if not is_over:
        return COMPUTE
    return HANG if end and end.cause is Cause.HANG else STOPPING


def _continued_from(rows: Sequence[Mapping[str, Any]], attempt: int) -> float:
    """The step from which the next attempt with steps continued; infinite without one."""
    later = next((row for row in rows if row.get("attempt", 0) > attempt and type(row.get("step")) is int), None)
    if later is None:
        return float("inf")
    return float(later["step"] - (later["event"] != rows_of.START))


def _steps(rows: Sequence[Mapping[str, Any]], continued_from: float) -> list[tuple[str, float]]:
    """The spans of an attempt's rows. A span after the step from which the next attempt continued is lost."""
    spans: list[tuple[str, float]] = []
    has_steps = False
    for row in rows:
        is_step = row["event"] == rows_of.STEP
        use = OF_ROWS.get(row["event"], COMPUTE) if has_steps else START
        has_steps = has_steps or is_step
        if use != START and type(row.get("step")) is int and row["step"] > continued_from:
            use = LOST
        if row["event"] == rows_of.CHECKPOINT and type(row.get("seconds")) in (int, float) and use != LOST:
            spans += [(use, row["t"] - row["seconds"]), (CHECKPOINTS, row["t"])]
        else:
            spans.append((use, row["t"]))
    return spans
