"""The forecast of a run as it was at its submission, kept with the provenance of its run."""

from __future__ import annotations

from dataclasses import dataclass

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import read_object
from torusrun.orchestrator.base.typed import record_of
from torusrun.orchestrator.run.folder.run_folder import RunFolder

KEY = "forecast"  # in the provenance


@dataclass(frozen=True)
class KeptForecast:
    """The predicted time of all steps and evaluations of a run without disturbances.

    `validation_s` is the part of the evaluations, `grid` the expected grid, and `assumptions` name the rates of the
    device and the links that it is made of. `bounds_s` are the bounds of `total_s` at 90 %, () if they are not known.
    """

    total_s: float
    validation_s: float
    steps: int
    images_per_s: float
    grid: tuple[int, ...]
    assumptions: tuple[str, ...] = ()
    bounds_s: tuple[float, ...] = ()

    @property
    def step_s(self) -> float:
        """The mean time of a step."""
        return (self.total_s - self.validation_s) / self.steps


def read(run: RunFolder) -> KeptForecast | None:
    """The kept forecast of a run; None for an unknown command, or a damaged record."""
    try:
        forecast: KeptForecast = record_of(KeptForecast, (read_object(run.provenance) or {}).get(KEY))
    except (SiteError, ValueError):
        return None
    return forecast if forecast.total_s > 0 and forecast.steps > 0 else None


def with_bounds_s(run: RunFolder) -> tuple[float, ...]:
    """The predicted time of all steps of a run, with its bounds at 90 % if they are kept; () without a forecast."""
    kept = read(run)
    return (kept.total_s, *kept.bounds_s) if kept else ()
