"""What `torusrun predict` shows: each answer as text and as JSON."""

from orchestrator.predict.reports.grids import Grids
from orchestrator.predict.reports.published import Published
from orchestrator.predict.reports.run import RunForecast, StretchTime
from orchestrator.predict.reports.sweep import Sweep

__all__ = ["Grids", "StretchTime", "Published", "RunForecast", "Sweep"]
