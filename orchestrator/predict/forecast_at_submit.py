"""The forecast that a run keeps from its submission, to be compared with what it takes."""

from __future__ import annotations

from torusrun.orchestrator.base.errors import TorusrunError
from torusrun.orchestrator.predict.forecast import forecast_of, forecasts_of_stretches
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
    return KeptForecast(
        total_s,
        found.validation_s,
        found.steps,
        found.images_per_s,
        found.grid,
        found.assumptions,
        bounds_s=() if parts else found.intervals["total_s"],
    )
