"""The measured times of a run and its forecast, by part. A part that was not measured is absent."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from statistics import mean
from typing import Any

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.typed import LARGEST_TIME_S
from torusrun.orchestrator.run.folder import kept_forecast, ledger, metrics
from torusrun.orchestrator.run.folder.events import Scored
from torusrun.orchestrator.run.folder.kept_forecast import KeptForecast
from torusrun.orchestrator.run.folder.node_load import NodeLoad, RankSteps
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.state.view import read_record
from torusrun.training.reporting import events as rows_of

TRAINING, STEP, COMPUTE, INPUT, WAITING, EXPOSED, STRAGGLERS, EVALUATIONS, SAVE = PARTS = (
    "training",  # all steps and evaluations of a run that is COMPLETED, without disturbances
    "step",  # the mean of the steps between two rows with nothing else between them
    "compute",  # of a step: the mean over the ranks
    "input",  # of this: for the samples to be read and decoded
    "waiting",  # of a step: for other ranks, the mean over the ranks
    "exposed",  # of this, what the rank that waits least waits: for communication, and for ranks that are late at times
    "stragglers",  # the rest: how much longer the slowest rank computes than the mean
    "evaluations",  # all of a run that is COMPLETED
    "save",  # how long all ranks wait for a checkpoint
)
FEWEST_STEPS = 10  # fewer say little about a mean

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class ScoredPart:
    """The time of a part, the predicted time, and the bounds of that at 90 %; None for what was not predicted."""

    actual_s: float
    forecast_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None

    @property
    def ratio(self) -> float | None:
        """The time by the predicted time; None without one."""
        return self.actual_s / self.forecast_s if self.forecast_s else None

    @property
    def is_inside(self) -> bool | None:
        """Whether the time is within the bounds; None without bounds."""
        return None if self.low_s is None or self.high_s is None else self.low_s <= self.actual_s <= self.high_s

    def as_json(self) -> dict[str, float]:
        """An object without the values that are not known; `error` is relative to the forecast."""
        error = None if self.ratio is None else self.ratio - 1
        return {key: round(value, 9) for key, value in {**asdict(self), "error": error}.items() if value is not None}

    @classmethod
    def of(cls, values: Mapping[str, float]) -> ScoredPart | None:
        """The part in an object of `as_json`; None if it is of another version."""
        named = (values.get(key) for key in ("forecast_s", "low_s", "high_s"))
        return cls(values["actual_s"], *named) if "actual_s" in values else None


@dataclass(frozen=True)
class RunScore:
    """The parts of a run that is over."""

    run: str
    site: str
    submitted_s: float | None
    parts: Mapping[str, ScoredPart]


def of_run(run: RunFolder) -> RunScore | None:
    """The score of a run that is over, as its job recorded it, or else by its folder; None if it has none."""
    record = read_record(run)
    if not record.settled:
        return None
    found: Mapping[str, ScoredPart] = {}
    if kept := next((event for event in reversed(record.events) if isinstance(event, Scored)), None):
        found = {name: part for name, values in kept.parts.items() if (part := ScoredPart.of(values))}
    else:
        with contextlib.suppress(SiteError):  # its metrics cannot be read
            found = _measured(run, run.attempt(record.attempt), record.status(None, time.time()).state)
    return RunScore(run.run_id, record.site, record.submitted_s, found) if found else None


def keep(run: RunFolder, attempt: Attempt, state: State) -> None:
    """Append the parts of a run in this `state` after an attempt to its ledger, if any are known.

    Raises SiteError if the metrics cannot be read, or the ledger cannot be written.
    """
    if found := _measured(run, attempt, state):
        ledger.append(run.ledger, Scored(attempt.number, {name: part.as_json() for name, part in found.items()}))


def _measured(run: RunFolder, attempt: Attempt, state: State) -> dict[str, ScoredPart]:
    """The parts; {} if nothing was predicted for so many ranks."""
    kept = kept_forecast.read(run)
    if kept is None:
        return {}
    rows, ranks = metrics.read(run.metrics), math.prod(kept.grid)
    if any(row["event"] == rows_of.START and row.get("world", ranks) != ranks for row in rows):
        return {}
    return parts(kept, rows, _steps_of(attempt, ranks), is_complete=state is State.COMPLETED)


def parts(kept: KeptForecast, rows: Rows, ranks: Sequence[RankSteps], *, is_complete: bool) -> dict[str, ScoredPart]:
    """The parts of a run by all its metrics, and by the steps of every rank of its newest attempt; () if unknown."""
    found: dict[str, ScoredPart] = {}
    step_s = mean_step_s(rows)
    if step_s and (is_complete or kept.compute_s is not None):  # else the steps to come may have other batches
        found[STEP] = ScoredPart(step_s, kept.step_s)
    if step_s and is_complete:
        evaluations_s = _evaluations_s(rows, step_s)
        found[TRAINING] = ScoredPart(step_s * kept.steps + evaluations_s, kept.total_s)
        if evaluations_s:
            found[EVALUATIONS] = ScoredPart(evaluations_s, kept.validation_s)
    found.update(_of_ranks(kept, ranks))
    saves = [row["seconds"] for row in rows if row["event"] == rows_of.CHECKPOINT and _has_times(row, "seconds")]
    if saves:
        found[SAVE] = ScoredPart(mean(saves), kept.save_s)
    for name in kept.intervals.keys() & found.keys():
        low_s, high_s = kept.intervals[name]
        found[name] = replace(found[name], low_s=low_s, high_s=high_s)
    return {name: found[name] for name in PARTS if name in found}


def mean_step_s(rows: Rows) -> float | None:
    """The mean time of a step between two rows of steps of one attempt that follow each other; None for few steps."""
    steps, spent_s = 0, 0.0
    for before, row in _followed(rows):
        if row["event"] == rows_of.STEP:
            steps += row["step"] - before["step"]
            spent_s += row["t"] - before["t"]
    return spent_s / steps if steps >= FEWEST_STEPS else None


def _followed(rows: Rows) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Rows of steps, each with the next row, if that is later and of the same attempt."""
    for before, row in pairwise(rows):
        if before["event"] == rows_of.STEP and all(_has_times(each, "t", "step") for each in (before, row)):
            is_later = row["t"] > before["t"] and row["step"] >= before["step"]
            if is_later and row.get("attempt") == before["attempt"]:
                yield before, row


def _evaluations_s(rows: Rows, step_s: float) -> float:
    """The time of all evaluations that count, by those that follow a row of a step; 0.0 if none does."""
    took = [
        max(row["t"] - before["t"] - (row["step"] - before["step"]) * step_s, 0.0)
        for before, row in _followed(rows)
        if row["event"] == rows_of.EVAL
    ]
    return mean(took) * len({row.get("step") for row in rows if row["event"] == rows_of.EVAL}) if took else 0.0


def _of_ranks(kept: KeptForecast, ranks: Sequence[RankSteps]) -> dict[str, ScoredPart]:
    """The parts of a step, of those that are known of each rank."""
    if not ranks or any(one.all_steps < FEWEST_STEPS for one in ranks):
        return {}
    read_s = [one.all_read_s / one.all_steps for one in ranks if one.all_read_s is not None]
    found = {INPUT: ScoredPart(mean(read_s), kept.input_s)} if len(read_s) == len(ranks) else {}
    waited_s = [one.all_waited_s / one.all_steps for one in ranks if one.all_waited_s is not None]
    if len(waited_s) < len(ranks):
        return found
    computed_s = [max(one.all_s / one.all_steps - each_s, 0.0) for one, each_s in zip(ranks, waited_s, strict=True)]
    late_s = kept.stragglers_s or 0.0  # below 0: the wait of a larger run that was measured, which compute contains
    waiting_s = None if kept.exposed_s is None else kept.exposed_s + max(late_s, 0.0)
    compute_s = None if kept.compute_s is None else kept.compute_s + min(late_s, 0.0)
    return {
        **found,
        COMPUTE: ScoredPart(mean(computed_s), compute_s),
        WAITING: ScoredPart(mean(waited_s), waiting_s),
        EXPOSED: ScoredPart(min(waited_s), waiting_s),
        STRAGGLERS: ScoredPart(max(computed_s) - mean(computed_s)),
    }


def _has_times(row: Mapping[str, Any], *keys: str) -> bool:
    return all(type(value := row.get(key)) in (int, float) and 0 <= value < LARGEST_TIME_S for key in keys)  # type: ignore[operator]


def _steps_of(attempt: Attempt, ranks: int) -> tuple[RankSteps, ...]:
    """The steps of all ranks of an attempt; () if those of one are missing."""
    loads = [NodeLoad.read(path) for path in sorted(attempt.ranks.glob("*.load.json"))]
    found = {steps.rank: steps for load in loads if load for steps in load.ranks}
    return tuple(found.values()) if len(found) == ranks else ()
