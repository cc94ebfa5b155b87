"""The finished runs of a plan's command, and the forecast that they give."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import TorusrunError, UserError
from torusrun.orchestrator.forecast.by_size import MeasuredRun, ProgramForecast, forecast
from torusrun.orchestrator.run.folder import index, metrics
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.shown_plan import KeptForecast
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.plan.plan_files import LARGEST_BYTES
from torusrun.training.reporting.events import STEP

NEWEST, MOST = 200, 20  # runs that are looked at, and that are used
TAIL_BYTES = 1 << 20  # of the metrics of each
SAME = ("command", "site", "image", "env")  # keys of runs that are compared
WARM_UP = 5  # the first fifth of the reported steps is left out: these compile, and fill caches
FEWEST, FEWEST_TIMES = 5, 3  # steps after the warm-up, and times of steps
AT_ONCE = 0.25  # of the mean step: rows that are nearer to each other were read together
PARTS = 5  # of the steps, whose means differ
NOTHING = "the time of this command is not known: submit it at some sizes first (docs/guides/predict.md)"


def command_forecast(plan: Plan) -> ProgramForecast:
    """The forecast of a plan's command by its finished runs. Raises UserError without such a run."""
    if runs := measured_runs(plan):
        return forecast(runs, plan.ranks)
    raise UserError(NOTHING)


def measured_runs(plan: Plan) -> list[MeasuredRun]:
    """The newest finished runs of the plan's command at its site, with the same folder of code, image and variables.

    Runs on one node compare with one another, and runs on several nodes with those of as many ranks on a node.
    """
    own = plan.as_json()
    newest = (measured for run in reversed(index.runs()[-NEWEST:]) if (measured := _measured(run, own)))
    return [*islice(newest, MOST)][::-1]


def forecast_at_submit(plan: Plan) -> KeptForecast | None:
    """What a run keeps of its command's forecast; None if no finished run says how many steps it takes."""
    runs = measured_runs(plan)
    total = forecast(runs, plan.ranks) if runs else None
    if not total or total.total_s is None or total.steps is None or total.total_between_s is None:
        return None
    return KeptForecast(
        total.total_s, 0.0, total.steps, 0.0, (plan.ranks,), total.doubts, bounds_s=total.total_between_s
    )


def _measured(run: RunFolder, own: Mapping[str, Any]) -> MeasuredRun | None:
    """The measurement of a run; None if it is of another command, not over, or has reported too few steps."""
    with contextlib.suppress(TorusrunError, OSError, ValueError, KeyError, TypeError, AttributeError):
        kept = json.loads(private.read_bytes(run.plan, LARGEST_BYTES))
        if not _comparable(kept, own):
            return None
        rows = metrics.read(run.metrics, TAIL_BYTES)
        attempt = rows[-1]["attempt"] if rows else 1
        end = End.read(run.attempt(attempt).end)
        times = _times([row for row in rows if row["event"] == STEP and row["attempt"] == attempt])
        if end and len(times) >= FEWEST_TIMES and times[-1][0] - times[0][0] >= FEWEST:
            return MeasuredRun(run.run_id, kept["ranks"], *_step(times), _total(rows, end))
    return None


def _comparable(kept: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    """Whether two plans run the same command, on one node or with as many ranks on each."""
    if any(kept["spec"].get(key) != own["spec"].get(key) for key in SAME):
        return False
    if not _same_folder(kept["spec"].get("code") or "", own["spec"].get("code") or ""):
        return False
    alone = kept["spec"]["nodes"] == own["spec"]["nodes"] == 1
    return alone or bool(kept["ranks_per_node"] == own["ranks_per_node"])


def _same_folder(kept: str, own: str) -> bool:
    """Whether code is from one folder. After a call from another machine the folder is gone: its name is compared."""
    return kept == own or (Path(kept).name == Path(own).name and not Path(kept).exists())


def _times(rows: Sequence[Mapping[str, Any]]) -> list[tuple[int, float]]:
    """Steps with their times, without the first ones; the last step of those that were read from a log at once.

    A log without times gets those of its reading: only the last of such steps has just been taken.
    """
    steps = list(_rising(rows))
    if len(steps) < 2:
        return []
    mean_s = (steps[-1][1] - steps[0][1]) / (steps[-1][0] - steps[0][0])
    ends = [
        (step, t) for (step, t), (_, later_s) in pairwise([*steps, (0, math.inf)]) if later_s - t > AT_ONCE * mean_s
    ]
    return ends[len(ends) // WARM_UP :]


def _rising(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, float]]:
    newest: tuple[int, float] | None = None
    for row in rows:
        step, t = row.get("step"), row.get("t")
        if step is not None and t is not None and (newest is None or (step > newest[0] and t >= newest[1])):
            newest = step, t
            yield newest


def _step(times: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """The mean seconds of a step, and its standard error by the parts of the run, as a share of it.

    A step that was read from a log may have been taken a step's time before.
    """
    (first, began_s), (last, ended_s) = times[0], times[-1]
    ends = [times[len(times) * part // PARTS] for part in range(PARTS)] + [times[-1]]
    parts = [(t - s) / (b - a) for (a, s), (b, t) in pairwise(ends) if b > a]
    spread = stdev(parts) / fmean(parts) / math.sqrt(len(parts)) if len(parts) > 1 else 0.0
    skipped = last - first > len(times)
    return (ended_s - began_s) / (last - first), max(spread, skipped / (last - first))


def _total(rows: Sequence[Mapping[str, Any]], end: End) -> int | None:
    """The steps of the whole run: what it reported, or its last step if it reached its end."""
    reported = next((row["total_steps"] for row in reversed(rows) if row.get("total_steps")), None)
    steps = [row["step"] for row in rows if row["event"] == STEP and row.get("step")]
    return reported or (max(steps) if steps and end.state.value == "COMPLETED" else None)
