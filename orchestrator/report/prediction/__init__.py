"""The answers of `torusrun predict`, as text and as JSON."""

from orchestrator.report.prediction.grids import Grids
from orchestrator.report.prediction.published import Published
from orchestrator.report.prediction.run import RunForecast, StretchTime
from orchestrator.report.prediction.sweep import Sweep

__all__ = ["Grids", "StretchTime", "Published", "RunForecast", "Sweep"]
