"""The forecast of a command in words, from its finished runs."""

from __future__ import annotations

from torusrun.orchestrator.base.shown.numbers import between, with_bounds
from torusrun.orchestrator.predict.answers.predicted import Predicted
from torusrun.orchestrator.predict.model.by_size import ProgramForecast
from torusrun.training.counted import counted

FEW = 5  # runs that are named
SCOPE = "a step has the evaluations and checkpoints of the measured steps; not modelled: start-up, faults, changed code"


def program(found: ProgramForecast) -> Predicted:
    """The forecast, what it is made of, and why it may be wrong."""
    rows = {
        "step": f"{_step(found.step_s)} ({between(found.step_between_s, _step)}) on {counted(found.ranks, 'rank')}",
        **({"time": f"{line(found)}"} if found.steps else {}),
        "in brackets": "90 % intervals",
        "measured": _measured(found),
    }
    doubts = [f"doubt: {doubt}" for doubt in found.doubts]
    return Predicted(
        found.as_json(), [*(f"{name:14}{text}" for name, text in rows.items()), *doubts, f"assumed: {SCOPE}"]
    )


def line(found: ProgramForecast) -> str:
    """'forecast 3.1 h [2.9, 3.5]: 9,000 steps of 1.24 s', or the time of a step if their number is not known."""
    if found.total_s is None or found.steps is None or found.total_between_s is None:
        return f"{_step(found.step_s)} a step ({between(found.step_between_s, _step)}); {found.doubts[-1]}"
    return (
        f"forecast {with_bounds(found.total_s, found.total_between_s)}: {found.steps:,} steps of {_step(found.step_s)}"
    )


def _measured(found: ProgramForecast) -> str:
    """The measured sizes, with the step of each, and the newest runs."""
    sizes = {size: [run.step_s for run in found.runs if run.ranks == size] for size in found.sizes}
    steps = ", ".join(f"{_step(min(each))} on {counted(size, 'rank')}" for size, each in sizes.items())
    names = ", ".join(run.run for run in found.runs[-FEW:])
    return f"{steps}, by {counted(len(found.runs), 'run')}: {names}"


def _step(value_s: float) -> str:
    """The time of a step with three digits, as '1.24 s' or '35.1 ms'."""
    return f"{value_s:.3g} s" if value_s >= 1 else f"{value_s * 1e3:.3g} ms"
