"""The forecast of a run as it was at its submission, kept with the provenance of its run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import read_object
from torusrun.orchestrator.base.typed import record_of
from torusrun.orchestrator.run.folder.run_folder import RunFolder

KEY = "forecast"  # in the provenance


@dataclass(frozen=True)
class KeptForecast:
    """The predicted time of all steps and evaluations of a run without disturbances.

    `validation_s` is the part of the evaluations, `grid` the expected grid, and `assumptions` name the rates of the
    device and the links that it is made of. `save_s` is how long all ranks wait for a checkpoint. If all steps have one
    batch, `compute_s` is computing in a step with the exchanges of batch norms and the wait for input, `input_s` that
    wait alone, `exposed_s` communication that it does not hide, and `stragglers_s` the wait for ranks that are late at
    times. None: not known. `intervals` are the 90 % intervals of some parts (predict/score.py), as (low, high) in
    seconds.
    """

    total_s: float
    validation_s: float
    steps: int
    images_per_s: float
    grid: tuple[int, ...]
    assumptions: tuple[str, ...] = ()
    save_s: float | None = None
    compute_s: float | None = None
    exposed_s: float | None = None
    stragglers_s: float | None = None
    input_s: float | None = None
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def step_s(self) -> float:
        """The mean time of a step."""
        return (self.total_s - self.validation_s) / self.steps


def read(run: RunFolder) -> KeptForecast | None:
    """The kept forecast of a run; None for an unknown command, a run of an earlier version, or a damaged record."""
    try:
        found: KeptForecast = record_of(KeptForecast, (read_object(run.provenance) or {}).get(KEY))
    except (SiteError, ValueError):
        return None
    return found if found.total_s > 0 and found.steps > 0 else None


def with_bounds_s(run: RunFolder) -> tuple[float, ...]:
    """The predicted time of all steps of a run, with its bounds at 90 % if they are kept; () without a forecast."""
    kept = read(run)
    return (kept.total_s, *kept.intervals.get("training", ())) if kept else ()
