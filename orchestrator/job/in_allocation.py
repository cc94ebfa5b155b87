"""The held allocation in which a keeper started an attempt, as the attempt's supervisor sees it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.runs.folder import allocation
from orchestrator.runs.folder.run_folder import Attempt, RunFolder
from orchestrator.runs.image import recorded as image_kept
from orchestrator.runs.image.recorded import Image


@dataclass(frozen=True)
class InAllocation:
    """The attempt that holds the allocation, and the seconds left in it."""

    attempt: Attempt
    left_s: float

    def staged(self, image: Image) -> bool:
        """Whether this image was sent to the nodes when the allocation began; the ranks still verify their copy."""
        kept = image_kept.kept(RunFolder(self.attempt.folder.parents[1]))
        return kept is not None and kept.sha256 == image.sha256


def in_allocation(environment: Mapping[str, str]) -> InAllocation | None:
    """The held allocation around this process, None if the attempt has its own job. Raises SiteError."""
    folder = environment.get(allocation.VARIABLE)
    if not folder:
        return None
    attempt = Attempt(Path(folder))
    state = allocation.keeper_state(attempt)
    return InAllocation(attempt, state.until_s - time.time()) if state else None
