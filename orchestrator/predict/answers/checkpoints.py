"""What checkpoints cost, in a line."""

from __future__ import annotations

from torusrun.orchestrator.base.shown.numbers import duration, ms, size
from torusrun.orchestrator.predict.model.checkpoints import CheckpointCost, Saving, cost


def line(found: CheckpointCost) -> str:
    """The interval, the time of a save with its source, and the share of the time."""
    failures = f"a failure in {_days(found.mean_time_to_failure_s)}"
    why = f"by Daly's rule ({failures})" if found.by_rule else f"as the run names it ({failures})"
    share = f"{100 * found.share:.2g} % of the time"
    return f"every {duration(found.interval_s)} {why}, {_save(found)}, {share}{_in_memory(found)}"


def line_without_rate(saving: Saving) -> str:
    """The same where the time of a step is not known."""
    if saving.every_steps is None:
        return line(cost(saving, 0.0))
    return f"every {saving.every_steps} steps, {_save(saving)}{_in_memory(cost(saving, 0.0))}"


def _in_memory(found: CheckpointCost) -> str:
    if not (copies := found.in_memory):
        return ""
    share = f", {100 * found.memory_share:.2g} % of the time" if found.memory_share else ""
    each = f"{ms(copies.copy_s)} ms (predicted){share}"
    return f"; after each step a copy in memory, {each}, {size(copies.bytes)} of each node"


def _save(found: CheckpointCost | Saving) -> str:
    return f"{ms(found.save_s)} ms each ({'measured' if found.measured else 'predicted'})"


def _days(value_s: float) -> str:
    return duration(value_s) if value_s < 2 * 86400 else f"{value_s / 86400:.0f} days"
