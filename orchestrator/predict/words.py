"""The answers of `predict` as values: a run by part, sizes and grids beside each other, a command by its runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torusrun.orchestrator.base.shown.numbers import between, duration, ms, size, thousands, with_bounds
from torusrun.orchestrator.base.shown.table import Column, Table
from torusrun.orchestrator.forecast.by_size import ProgramForecast
from torusrun.orchestrator.forecast.checkpoints import CheckpointCost, Saving, cost
from torusrun.orchestrator.forecast.forecast import Forecast
from torusrun.orchestrator.forecast.interval import largest
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.training.counted import counted


def checkpoints_line(costs: CheckpointCost) -> str:
    """The interval, the time of a save with its source, and the share of the time."""
    failures = f"a failure in {_days(costs.mean_time_to_failure_s)}"
    why = f"by Daly's rule ({failures})" if costs.by_rule else f"as the run names it ({failures})"
    share = f"{100 * costs.share:.2g} % of the time"
    return f"every {duration(costs.interval_s)} {why}, {_save(costs)}, {share}{_in_memory(costs)}"


def checkpoints_line_without_rate(saving: Saving) -> str:
    """The same where the time of a step is not known."""
    if saving.every_steps is None:
        return checkpoints_line(cost(saving, 0.0))
    return f"every {saving.every_steps} steps, {_save(saving)}{_in_memory(cost(saving, 0.0))}"


def _in_memory(costs: CheckpointCost) -> str:
    if not (copies := costs.in_memory):
        return ""
    share = f", {100 * costs.memory_share:.2g} % of the time" if costs.memory_share else ""
    each = f"{ms(copies.copy_s)} ms (predicted){share}"
    return f"; after each step a copy in memory, {each}, {size(copies.bytes)} of each node"


def _save(costs: CheckpointCost | Saving) -> str:
    return f"{ms(costs.save_s)} ms each ({'measured' if costs.measured else 'predicted'})"


def _days(value_s: float) -> str:
    return duration(value_s) if value_s < 2 * 86400 else f"{value_s / 86400:.0f} days"


class Predicted(NamedTuple):
    """A record for programs, and the same as lines for people."""

    record: dict[str, Any]
    lines: list[str]


def run(f: Forecast) -> Predicted:
    """A forecast."""
    rows = _rows(f)
    width = max(13, *map(len, rows)) + 1  # the name of an accuracy may be long
    lines = [*(f"{name:{width}}{text}" for name, text in rows.items()), *(f"assumed: {line}" for line in f.assumptions)]
    return Predicted(f.as_json(), lines)


def _rows(f: Forecast) -> dict[str, str]:
    slower = f.best_grid != f.grid and f.best_grid_all_reduce_s < f.all_reduce_s
    best = f" is {Grid(f.best_grid)}, {ms(f.best_grid_all_reduce_s)} ms" if slower else ""
    more = f" + batch norms' exchange {ms(f.norms_s)}" if f.norms_s else ""
    more += f" + wait for input {ms(f.input_s)}" if f.input_s else ""
    first = ", ".join(map(str, f.groups[:8])) + (", ..." if len(f.groups) > 8 else "")
    parts = f"{counted(f.steps, 'step')} {duration(f.train_s)}, validation {duration(f.validation_s)}"
    rows = {
        "grid": f"{Grid(f.grid)}, all-reduce of all gradients {ms(f.all_reduce_s)} ms ({_at(f, 'all_reduce_s', ms)}); "
        f"the best grid{best}",
        "step": f"{ms(f.step_s)} ms ({_at(f, 'step_s', ms)}) = forward {ms(f.forward_s)} + backward {ms(f.backward_s)} "
        f"+ fixed {ms(f.fixed_s)} + slowest rank {ms(f.stragglers_s)} + exposed communication {ms(f.exposed_s)}{more}",
        "groups": f"{len(f.groups)}, of {first} tensors" if f.groups else "none: weights are averaged, not gradients",
        "throughput": f"{thousands(f.images_per_s)} images/s ({_at(f, 'images_per_s', thousands)}) "
        f"on {counted(f.ranks, 'rank')}",
        **_input(f),
        "time": f"{duration(f.total_s)} ({_at(f, 'total_s', duration)}): {parts}",
        "node-hours": f"{f.node_hours:.4g} ({_at(f, 'node_hours', '{:.4g}'.format)})",
        **({} if f.points is None else {"points": f"{f.points:.4g} ({_at(f, 'points', '{:.4g}'.format)})"}),
        "checkpoints": checkpoints_line(f.checkpoints),
    }
    if len(f.phases) > 1:
        phases = (
            f"{part.steps} of {counted(part.batch, 'image')} in {ms(part.step_s)} ms ({between(part.interval_s, ms)})"
            for part in f.phases
        )
        rows["phases"] = "; ".join(phases)
    rows |= _target(f)
    rows["in brackets"] = _doubts(f)
    return rows


def _input(f: Forecast) -> dict[str, str]:
    """How fast the ranks read and decode images, if it is known."""
    if f.reading_s is None:
        return {}
    batch = max(f.phases, key=lambda phase: phase.steps * phase.step_s).batch
    rate, bounds = batch / f.reading_s, f.intervals["reading_s"].rate_of(batch)
    beside = "slower than the steps" if f.input_s else "in parallel with the steps, which take longer"
    return {
        "input": f"{thousands(rate)} images/s on {counted(f.ranks, 'rank')} ({between(bounds, thousands)}), {beside}"
    }


def _at(f: Forecast, name: str, show: Callable[[float], str]) -> str:
    return between(f.intervals[name], show)


def _target(f: Forecast) -> dict[str, str]:
    """The epochs and the time to the published accuracy; why they are not known; nothing if nobody asks."""
    if not f.epochs_source:
        return {}
    if f.epochs_to_target is None or f.to_target_s is None:
        return {f"to {f.target}": f"not known: {f.epochs_source}"}
    words = f"{f.epochs_to_target:.1f} epochs ({_at(f, 'epochs_to_target', '{:.1f}'.format)}) {f.epochs_source}"
    return {f"to {f.target}": f"{words}, {duration(f.to_target_s)} ({_at(f, 'to_target_s', duration)})"}


def _doubts(f: Forecast) -> str:
    """What the brackets are, and what widens them; an interval too wide to plan by is called so."""
    wide = "too wide to plan by, mostly because" if f.intervals["step_s"].is_wide else "mostly because"
    return f"90 % intervals, {wide} {largest(f.doubts).why}"


COLUMNS: tuple[Column[Forecast], ...] = (
    Column("ranks", lambda row: row.ranks, thousands, key="ranks"),
    Column("grid", lambda row: row.grid, lambda dims: str(Grid(dims)), key="grid", right=True),
    Column("all-reduce ms", lambda row: row.all_reduce_s, ms, key="all_reduce_s"),
    Column("step ms", lambda row: row.step_s, ms, key="step_s"),
    Column("90 %", lambda row: row.intervals["step_s"], lambda ends: between(ends, ms), key="step_90_s", right=True),
    Column("images/s", lambda row: row.images_per_s, thousands, key="images_per_s"),
    Column("time", lambda row: row.total_s, duration, key="total_s", right=True),
    Column("90 %", lambda row: row.intervals["total_s"], lambda ends: between(ends, duration), key="total_90_s"),
    Column("node-hours", lambda row: row.node_hours, "{:.4g}".format, key="node_hours"),
)


def compared(forecasts: Sequence[Forecast]) -> Predicted:
    """A table with a row for each of these forecasts."""
    table = Table(COLUMNS, forecasts)
    return Predicted({"forecasts": table.as_json()}, table.lines())


def attempts_needed(plan: Plan, total_s: float) -> int:
    """The attempts by the time limit of the plan."""
    return attempts_for(total_s, plan.run.time_s, plan.stop_before_s)


def cost_line(plan: Plan, total_s: float) -> str:
    """'4.6 node-hours' of all roles for so many seconds, and the attempts if it needs several."""
    needed, node_hours = attempts_needed(plan, total_s), plan.asked_nodes * total_s / 3600
    hours = f"{node_hours:.4g} node-hours"
    if plan.site.points_per_node_hour is not None:
        hours += f", {node_hours * plan.site.points_per_node_hour:.4g} points"
    if needed == 1:
        return hours
    line = f"{hours} in {needed} attempts, each of at most {duration(plan.run.time_s)}"
    if plan.jobs >= needed:
        return f"{line}, by {counted(plan.jobs, 'job')}"
    return f"{line}; `keep_going: {{attempts: {needed}}}` submits all of them, and a longer `time` needs fewer"


FEW = 5  # runs that are named
SCOPE = "a step has the evaluations and checkpoints of the measured steps; not modelled: start-up, faults, changed code"


def program(f: ProgramForecast, plan: Plan) -> Predicted:
    """The forecast of the command of a plan, what it costs, what it is made of, and why it may be wrong."""
    rows = {
        "step": f"{_step(f.step_s)} ({between(f.step_between_s, _step)}) on {counted(f.ranks, 'rank')}",
        **({"time": program_line(f)} if f.steps else {}),
        **({"cost": cost_line(plan, f.total_s)} if f.total_s else {}),
        "in brackets": "90 % intervals",
        "measured": _measured(f),
    }
    doubts = [f"doubt: {doubt}" for doubt in f.doubts]
    return Predicted(f.as_json(), [*(f"{name:14}{text}" for name, text in rows.items()), *doubts, f"assumed: {SCOPE}"])


def program_line(f: ProgramForecast) -> str:
    """'forecast 3.1 h [2.9, 3.5]: 9,000 steps of 1.24 s', or the time of a step if their number is not known."""
    if f.total_s is None or f.steps is None or f.total_between_s is None:
        return f"{_step(f.step_s)} a step ({between(f.step_between_s, _step)}); {f.doubts[-1]}"
    return f"forecast {with_bounds(f.total_s, f.total_between_s)}: {f.steps:,} steps of {_step(f.step_s)}"


def _measured(f: ProgramForecast) -> str:
    """The measured sizes, with the step of each, and the newest runs."""
    sizes = {size: [run.step_s for run in f.runs if run.ranks == size] for size in f.sizes}
    steps = ", ".join(f"{_step(min(each))} on {counted(size, 'rank')}" for size, each in sizes.items())
    names = ", ".join(run.run for run in f.runs[-FEW:])
    return f"{steps}, by {counted(len(f.runs), 'run')}: {names}"


def _step(value_s: float) -> str:
    """The time of a step with three digits, as '1.24 s' or '35.1 ms'."""
    return f"{value_s:.3g} s" if value_s >= 1 else f"{value_s * 1e3:.3g} ms"


def attempts_for(work_s: float, limit_s: float, stop_before_s: float = 0.0) -> int:
    """The attempts in a row for `work_s` of training; each must stop `stop_before_s` before its limit.

    The time from the start of an attempt to its first step is not known, and left out.
    """
    usable_s = limit_s - stop_before_s
    return max(math.ceil(work_s / usable_s), 1) if usable_s > 0 else 1
