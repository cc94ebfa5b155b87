"""The forecast that a run keeps from its submission, to be compared with what it takes."""

from __future__ import annotations

from dataclasses import replace

from torusrun.orchestrator.base.errors import TorusrunError
from torusrun.orchestrator.predict.forecast import forecast_of, forecasts_of_stretches
from torusrun.orchestrator.predict.model.forecast import Forecast
from torusrun.orchestrator.run.folder.kept_forecast import KeptForecast
from torusrun.orchestrator.run.plan.plan import Plan


def forecast_at_submit(plan: Plan) -> KeptForecast | None:
    """The forecast of a training on the hosts that the site will probably allocate; None if nothing is known.

    A run whose phases want different numbers of nodes takes the sum of their times.
    """
    if plan.run.program != "train":
        return None
    try:
        found, parts = forecast_of(plan), forecasts_of_stretches(plan)
    except TorusrunError:  # no rate is known, or the topology is not: the submission does not need it
        return None
    total_s = sum(part_s for _, part_s in parts) or found.total_s
    kept = KeptForecast(
        total_s,
        found.validation_s,
        found.steps,
        found.images_per_s,
        found.grid,
        found.assumptions,
        save_s=found.checkpoints.save_s,
        intervals={} if parts else _intervals(found),
    )
    if len(found.phases) > 1:
        return kept
    compute_s = found.forward_s + found.backward_s + found.fixed_s + found.norms_s + found.input_s
    input_s = None if found.reading_s is None else found.input_s
    return replace(
        kept, compute_s=compute_s, exposed_s=found.exposed_s, stragglers_s=found.stragglers_s, input_s=input_s
    )


def _intervals(found: Forecast) -> dict[str, tuple[float, float]]:
    """The intervals of the parts of a score, of those that the forecast has."""
    known = found.as_json().get("intervals", {})
    named = {"training": ("total_s", 1), "step": ("train_s", found.steps), "evaluations": ("validation_s", 1)}
    return {
        part: (known[name][0] / count, known[name][1] / count) for part, (name, count) in named.items() if name in known
    }
