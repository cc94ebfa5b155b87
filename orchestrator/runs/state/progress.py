"""The progress of a run by its newest metrics. A row of a program may have only the number of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.runs.folder import metrics
from orchestrator.runs.state.pace import Pace, pace, step_s
from training.reporting import events


@dataclass(frozen=True)
class RunProgress:
    """The newest values; None if no row has them.

    `newest_result` is 'loss' or 'accuracy', the one that came last. `eta_s` is the time to the last step at the pace of
    the attempt's own steps; None if the number of steps or the pace is unknown, or the steps have paused or stopped.
    """

    step: int | None = None
    total_steps: int | None = None
    images_per_s: float | None = None
    loss: float | None = None
    accuracy: float | None = None
    newest_result: str = ""
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
        eta_s,
        paced,
    )


def _newest(rows: Sequence[dict[str, Any]], key: str) -> Any:
    """The newest value of a key; None if no row has one."""
    return next((row[key] for row in reversed(rows) if row.get(key) is not None), None)
