"""The input of a step: a rank reads and decodes the next batch during the step, and waits if that takes longer."""

from __future__ import annotations

from dataclasses import dataclass

from torusrun.orchestrator.predict.model.interval import Interval


@dataclass(frozen=True)
class InputTime:
    """The seconds until a rank has an image: from the cache of the system, or else from the file system."""

    cache_s: float
    file_system_s: float

    def of_batch(self, batch: float, factor: float) -> Interval:
        """The bounds of a batch: all images from the cache, or none; a repeated measurement differs by `factor`."""
        return Interval(batch * self.cache_s / factor, batch * self.file_system_s * factor)
