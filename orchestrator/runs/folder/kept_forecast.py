"""The forecast of a training as it was at its submission, kept with the provenance of its run."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.base.errors import SiteError
from orchestrator.base.json_files import read_object
from orchestrator.base.typed import record_of
from orchestrator.runs.folder.run_folder import RunFolder

KEY = "forecast"  # in the provenance


@dataclass(frozen=True)
class KeptForecast:
    """The predicted time of all steps and evaluations of a training without disturbances.

    `validation_s` is the part of the evaluations, `grid` the expected grid, and `assumptions` name the rates of the
    device and the links that it is made of.
    """

    total_s: float
    validation_s: float
    steps: int
    images_per_s: float
    grid: tuple[int, ...]
    assumptions: tuple[str, ...] = ()


def read(run: RunFolder) -> KeptForecast | None:
    """The kept forecast of a run; None for a command, a run of an earlier version, or a damaged record."""
    try:
        found: KeptForecast = record_of(KeptForecast, (read_object(run.provenance) or {}).get(KEY))
    except (SiteError, ValueError):
        return None
    return found if found.total_s > 0 else None
