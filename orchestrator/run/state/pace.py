"""The progress and the pace of a run by its newest metrics. A row of a program may have only the number of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torusrun.orchestrator.run.folder import metrics
from torusrun.training.reporting import events

# A pause is reported if it is longer than both. An evaluation or a checkpoint can be such a pause.
LEAST_PAUSE_S = 10.0
TIMES_USUAL = 10
# The time allowed for the first and for the second step of an attempt: until the second, no usual time is known.
FIRST_STEP_S = 60.0


@dataclass(frozen=True)
class Pace:
    """`age_s` is the age of the newest step of an attempt, `usual_s` the median time between two; None if unknown.

    Only recorded steps count, which need not be all steps (`train.log_every_steps`). `pause` is a sentence if no step
    came for an unusually long time, else ''.
    """

    age_s: float | None = None
    usual_s: float | None = None
    pause: str = ""


def pace(rows: Sequence[dict[str, Any]], attempt: int, started_s: float | None, now_s: float) -> Pace:
    """The pace of a running attempt that began at `started_s`, as of `now_s`, from its newest metrics.

    Both are seconds of time.time(), perhaps by clocks that differ: ages are never negative.
    """
    rows = [row for row in rows if row.get("attempt") == attempt]
    times = [row["t"] for row in rows if row["event"] == events.STEP and row.get("t") is not None]
    gaps = sorted(max(later - earlier, 0.0) for earlier, later in zip(times, times[1:], strict=False))
    age_s = max(now_s - times[-1], 0.0) if times else None
    usual_s = gaps[len(gaps) // 2] if gaps else None
    if _at_its_end(rows):
        return Pace(age_s, usual_s)
    return Pace(age_s, usual_s, _pause(age_s, usual_s, None if started_s is None else now_s - started_s))


def step_s(rows: Sequence[dict[str, Any]], attempt: int) -> float | None:
    """The mean time of a step between the first and the last of an attempt's rows, pauses included; None if unknown.

    It is not the median, because evaluations and checkpoints are part of the remaining time.
    """
    timed = [
        (row["step"], row["t"])
        for row in rows
        if row["event"] == events.STEP and "step" in row and row.get("attempt") == attempt and row.get("t") is not None
    ]
    if not timed:
        return None
    (first, began_s), (last, ended_s) = timed[0], timed[-1]
    return (ended_s - began_s) / (last - first) if last > first and ended_s > began_s else None


def _at_its_end(rows: Sequence[dict[str, Any]]) -> bool:
    """Whether an attempt takes no more steps: it has stopped, is done, or has taken its last step."""
    newest = metrics.newest(list(rows), *events.ALONG)
    if newest is None:
        return False
    return newest["event"] in (events.STOP, events.DONE) or newest.get("step") == newest.get("total_steps", -1)


def _pause(age_s: float | None, usual_s: float | None, since_start_s: float | None) -> str:
    if age_s is None:
        late = since_start_s is not None and since_start_s > FIRST_STEP_S
        return f"no step yet, started {duration(since_start_s)} ago" if late and since_start_s else ""
    if usual_s is None:
        return f"no step for {duration(age_s)}" if age_s > FIRST_STEP_S else ""
    if age_s <= max(LEAST_PAUSE_S, TIMES_USUAL * usual_s):
        return ""
    return f"no step for {duration(age_s)}, usual {duration(usual_s)}"


@dataclass(frozen=True)
class RunProgress:
    """The newest values; None if no row has them.

    `newest_result` is 'loss' or 'accuracy', whichever came last; `of_roles` has the numbers of services.
    `eta_s` is the time to the last step at the pace of the attempt's own steps; None if the number of steps or the
    pace is unknown, or the steps have paused or stopped.
    """

    step: int | None = None
    total_steps: int | None = None
    images_per_s: float | None = None
    loss: float | None = None
    accuracy: float | None = None
    newest_result: str = ""
    of_roles: Mapping[str, float] = field(default_factory=dict)
    eta_s: float | None = None
    pace: Pace = Pace()


def progress(rows: Sequence[dict[str, Any]], attempt: int, started_s: float | None, now_s: float | None) -> RunProgress:
    """The progress of a run by its newest `rows`.

    `now_s` (of time.time()) is None if the attempt is not running: then it has neither a pace nor an ETA.
    """
    at = metrics.newest([row for row in rows if "step" in row], *events.ALONG) or {}
    paced = Pace() if now_s is None else pace(rows, attempt, started_s, now_s)
    step, total = at.get("step"), _newest(rows, "total_steps")
    stands = paced.pause or at.get("event") == events.STOP
    per_step_s = None if now_s is None or stands else step_s(rows, attempt)
    eta_s = None
    if per_step_s is not None and step is not None and total is not None and total > step:
        eta_s = max((total - step) * per_step_s - (paced.age_s or 0.0), 0.0)
    return RunProgress(
        step,
        total,
        _newest([row for row in rows if row["event"] == events.STEP], "images_per_s"),
        _newest(rows, "loss"),
        _newest(rows, "accuracy"),
        next((key for row in reversed(rows) for key in ("accuracy", "loss") if row.get(key) is not None), ""),
        of_roles(rows),
        eta_s,
        paced,
    )


def of_roles(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The newest value of each number that a service reported, as evaluate/accuracy."""
    numbers = [row.items() for row in rows if row["event"] == events.ROLE]
    return {name: value for row in numbers for name, value in row if "/" in name and type(value) in (int, float)}


def _newest(rows: Sequence[dict[str, Any]], key: str) -> Any:
    """The newest value of a key; None if no row has it."""
    return next((row[key] for row in reversed(rows) if row.get(key) is not None), None)


def short(seconds: float) -> str:
    """A time in at most six columns: '40s', '6m', '3h05m', '2d04h', '400d'."""
    minutes = int(seconds // 60)
    if minutes < 1:
        return f"{max(seconds, 0):.0f}s" if seconds < 59.5 else "1m"
    if minutes < 60:
        return f"{minutes}m"
    if minutes < 24 * 60:
        return f"{minutes // 60}h{minutes % 60:02d}m"
    days, hours = divmod(minutes // 60, 24)
    return f"{days}d{hours:02d}h" if days < 100 else f"{days}d"


def duration(seconds: float) -> str:
    """A time in words: '0.2 s', '40 s', '6 min', '3.5 h'."""
    if seconds < 10:
        return f"{round(seconds, 3):.2g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
