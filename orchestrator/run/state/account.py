"""Where the time of a run went: a partition of the time since its first submission. A pure function of its records."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

from torusrun.orchestrator.base.states import Cause, State
from torusrun.orchestrator.base.typed import LARGEST_TIME_S
from torusrun.orchestrator.run.folder import ledger, metrics, shown_plan
from torusrun.orchestrator.run.folder.events import Event
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.shown_plan import KeptForecast
from torusrun.orchestrator.run.state.attempts import AttemptFacts, by_attempt, facts
from torusrun.orchestrator.run.state.next_attempt import may_begin_another
from torusrun.training.reporting import events as rows_of

QUEUE, START, COMPUTE, EVALUATION, CHECKPOINTS, LOST, HANG, STOPPING, UNREPORTED, IDLE = USES = (
    "queue",  # from the submission of an attempt to its start; in a chain of jobs, from the end of the job before
    "start",  # from its start to its first step; in the job of the attempt before, from the end of that attempt
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
LONGEST_S = 1e6  # of a checkpoint
FEWEST_STEPS = 10  # fewer say little about a mean
OF_ROWS = {rows_of.EVAL: EVALUATION, rows_of.START: START}


@dataclass(frozen=True)
class Account:
    """The attempts of a run, and seconds by use; `waited_s` is the time from submission to first start.

    `forecast` is what was predicted at its submission, None if nothing was; `step_s` is the mean time of a step, None
    for too few.
    """

    attempts: tuple[AttemptFacts, ...]
    seconds: Mapping[str, float]
    waited_s: float
    forecast: KeptForecast | None = None
    step_s: float | None = None

    @property
    def total_s(self) -> float:
        """The time from the first submission to the end, or to now."""
        return sum(self.seconds.values())

    @property
    def productive_s(self) -> float:
        return sum(self.seconds.get(use, 0.0) for use in PRODUCTIVE)

    @property
    def ettr(self) -> float | None:
        """The effective training time ratio: productive time by the time since the first start; None without steps.

        Source: Meta, "Revisiting Reliability in Large-Scale Machine Learning Research Clusters", arXiv 2410.21680,
        section 3 (definition from memory; without evaluations, which count as productive here).
        """
        since_s = self.total_s - self.waited_s
        return self.productive_s / since_s if since_s > 0 and self.productive_s > 0 else None

    @property
    def since_submit(self) -> float | None:
        """Productive time by the time since the first submission; None before any time has passed."""
        return self.productive_s / self.total_s if self.total_s > 0 else None

    def as_json(self) -> dict[str, Any]:
        return {
            "seconds": {use: round(self.seconds.get(use, 0.0), 3) for use in USES},
            "since_submit": self.since_submit,
            "ettr": self.ettr,
            "waited_s": self.waited_s,
            "forecast": asdict(self.forecast) if self.forecast else None,
            "step_s": self.step_s,
            "attempts": [{**asdict(attempt), "took_s": attempt.took_s} for attempt in self.attempts],
        }


def account(events: Sequence[Event], rows: Sequence[Mapping[str, Any]], now_s: float, state: State) -> Account:
    """The account of a run in this `state` by its ledger and its metrics, as of `now_s` (of time.time()), or its end.

    Times come from several clocks. A time before its predecessor counts as equal to it, so that the uses always add up
    to the time from the first to the last. A run that is over without a record of its end ended at its last row. A run
    that waits for its next attempt has not ended.
    """
    rows = [row for row in rows if row.get("event") != rows_of.ROLE]  # services work beside the training
    attempts = facts(events, rows, now_s, state)
    seconds = dict.fromkeys(USES, 0.0)
    first_s = at_s = next((attempt.submitted_s for attempt in attempts), now_s)
    spans = [*_spans(attempts, by_attempt(rows))]
    if not state.over and attempts and attempts[-1].state.over and may_begin_another(events, attempts[-1].attempt):
        spans.append((START if state is State.RUNNING else QUEUE, now_s))
    for use, until_s in spans:
        seconds[use] += max(until_s - at_s, 0.0)
        at_s = max(at_s, until_s)
    begun_s = next((attempt.begun_s for attempt in attempts if attempt.begun_s is not None), at_s)
    return Account(tuple(attempts), seconds, max(begun_s - first_s, 0.0), step_s=mean_step_s(rows))


def mean_step_s(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """The mean time of a step between rows of steps that follow each other in an attempt; None for few steps."""
    steps, spent_s = 0, 0.0
    for before, row in pairwise(rows):
        if before["event"] == row["event"] == rows_of.STEP and before.get("attempt") == row.get("attempt"):
            if not all(_is_time(each.get(key)) for each in (before, row) for key in ("t", "step")):
                continue
            if row["t"] > before["t"] and row["step"] >= before["step"]:
                steps += row["step"] - before["step"]
                spent_s += row["t"] - before["t"]
    return spent_s / steps if steps >= FEWEST_STEPS else None


def _is_time(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value < LARGEST_TIME_S  # type: ignore[operator]


def read_account(run: RunFolder, state: State) -> Account:
    """The account of a run in this `state`, from its folder, as of now. Raises SiteError without readable metrics."""
    return replace(
        account(ledger.events(run.ledger), metrics.read(run.metrics), time.time(), state),
        forecast=shown_plan.read_forecast(run),
    )


def _spans(
    attempts: Sequence[AttemptFacts], rows: Mapping[Any, Sequence[Mapping[str, Any]]]
) -> Iterator[tuple[str, float]]:
    """(use, its end in time), in the order of time from the first submission on."""
    for n, attempt in enumerate(attempts):
        before = attempts[n - 1] if n and attempt.begun_s is not None else None
        again = before is not None and attempt.follows == before.attempt and attempt.job == before.job
        # Nobody submits the attempts of a chain.
        yield START if again else QUEUE if attempt.follows else IDLE, attempt.submitted_s
        yield START if again else QUEUE, attempt.until_s if attempt.begun_s is None else attempt.begun_s
        if attempt.begun_s is not None:
            own = rows.get(attempt.attempt, ())
            later = [row for other in attempts[n + 1 :] for row in rows.get(other.attempt, ())]
            for use, row_s in _steps(own, _continued_from(later)):
                yield use, min(row_s, attempt.until_s)
            yield _last(attempt, own), attempt.until_s


def _last(attempt: AttemptFacts, rows: Sequence[Mapping[str, Any]]) -> str:
    """The use of the time after the last row of an attempt."""
    if not any(row["event"] == rows_of.STEP for row in rows):
        return UNREPORTED if attempt.state.over else START
    if not attempt.state.over:
        return COMPUTE
    return HANG if attempt.cause == Cause.HANG.value else STOPPING


def _continued_from(later: Sequence[Mapping[str, Any]]) -> float:
    """The step from which the next attempt with steps continued; infinite without such an attempt."""
    first = next((row for row in later if type(row.get("step")) is int), None)
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
    took_s = row.get("seconds")
    return took_s if type(took_s) in (int, float) and 0 <= took_s <= LONGEST_S else 0.0  # type: ignore[operator,return-value]
