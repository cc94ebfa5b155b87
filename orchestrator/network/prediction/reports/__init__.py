"""What `torusrun predict` shows: each answer as text and as JSON."""

from orchestrator.network.prediction.reports.grids import Grids
from orchestrator.network.prediction.reports.published import Published
from orchestrator.network.prediction.reports.run import RunForecast, StretchTime
from orchestrator.network.prediction.reports.sweep import Sweep

__all__ = ["Grids", "StretchTime", "Published", "RunForecast", "Sweep"]
