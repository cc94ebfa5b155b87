"""What a planned run will probably cost, how many attempts it takes, and when it will be done, in words."""

from __future__ import annotations

import time

from torusrun.orchestrator.base.shown.numbers import duration
from torusrun.orchestrator.predict.model.forecast import Forecast
from torusrun.orchestrator.run.plan import chain
from torusrun.orchestrator.run.plan.phase_groups import stretches
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.training.counted import counted


def attempts_needed(plan: Plan, forecast: Forecast) -> int | None:
    """The attempts by the time limit of the plan; None if its phases want other nodes, which makes attempts, too."""
    return None if stretches(plan.run) else chain.attempts(forecast.total_s, plan.run.time_s, plan.stop_before_s)


def cost_line(plan: Plan, forecast: Forecast) -> str:
    """'4.6 node-hours', and the attempts if one is not enough."""
    needed, hours = attempts_needed(plan, forecast) or 1, f"{forecast.node_hours:.4g} node-hours"
    if forecast.points is not None:
        hours += f", {forecast.points:.4g} points"
    if needed == 1:
        return hours
    line = f"{hours} in {needed} attempts, each of at most {duration(plan.run.time_s)}"
    if plan.jobs >= needed:
        return f"{line}, by {counted(plan.jobs, 'job')}"
    return f"{line}; `keep_going: {{attempts: {needed}}}` submits all of them, and a longer `time` needs fewer"


def start_line(plan: Plan, forecast: Forecast | None, starts_s: float | None) -> str:
    """The estimated start, and when the run is done if one attempt is enough for it."""
    if starts_s is None:
        return "unknown: the scheduler could run the job, and does not say when"
    line = f"about {_minute(starts_s)}, by the scheduler's estimate"
    if forecast and attempts_needed(plan, forecast) == 1:
        return f"{line}; done about {_minute(starts_s + forecast.total_s)}"
    return line


def _minute(time_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(time_s))
