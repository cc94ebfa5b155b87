"""Notes on effects of a plan that a user may not expect, but that are not errors."""

from __future__ import annotations

from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.training.recipe.names import SCHEDULES


def notes(plan: Plan) -> list[str]:
    """The notes of a plan, one line each."""
    train = plan.run.train
    keys, peak = train.schedule, train.optimizer.lr
    by_phases = any(phase.lr for phase in train.phases)
    if plan.run.command or by_phases or keys.name not in SCHEDULES.known or keys.warmup_epochs <= train.epochs:
        return []
    last = peak * train.epochs / keys.warmup_epochs
    why = f"train.schedule.warmup_epochs is {keys.warmup_epochs:g}, and train.epochs is {train.epochs}"
    return [f"the run ends in its warm-up, at lr {last:g}: {why}"]
