"""The newest value of each metric of a run."""

from __future__ import annotations

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.run.folder import metrics
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.training.reporting.events import COUNTS, DONE, EVAL, STEP

TAIL_BYTES = 65_536  # hundreds of rows: an evaluation, whose result counts, is among them
OF_RESULTS = (STEP, EVAL, DONE)
NO_RESULTS = {*COUNTS, "t", "epoch", "lr", "batch", "time_s", "bytes", "ranks"}


def results(run: RunFolder) -> dict[str, float]:
    """The newest value of every number that a run reported, without its progress; {} if it cannot be read."""
    try:
        rows = metrics.read(run.metrics, TAIL_BYTES)
    except SiteError:
        return {}
    found: dict[str, float] = {}
    for row in rows:
        if row.get("event") in OF_RESULTS:
            numbers = {key: value for key, value in row.items() if type(value) in (int, float)}
            found.update((key, float(value)) for key, value in numbers.items() if key not in NO_RESULTS)
    return found
