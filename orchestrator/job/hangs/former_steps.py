"""How long a step took in an earlier attempt of a run, by the run's metrics."""

from __future__ import annotations

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.whole_lines import TAIL_BYTES
from torusrun.orchestrator.place.placement.mapping import Placement
from torusrun.orchestrator.run.folder import ledger, metrics
from torusrun.orchestrator.run.folder.events import Started
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.pace import step_s


def former_step_s(run: RunFolder, number: int, placement: Placement) -> float | None:
    """The mean time of a step in attempts before `number` whose grid and number of hosts were the same: the shortest.

    Pauses are part of a mean, and a slow first step is most of that of a short attempt. None if no such attempt
    recorded two steps.
    """
    try:
        rows = metrics.read(run.metrics, TAIL_BYTES)
    except SiteError:
        return None
    began = {event.attempt: event for event in ledger.events(run.ledger) if isinstance(event, Started)}
    same = (
        earlier
        for earlier, event in began.items()
        if earlier < number and event.grid == placement.grid.dims and len(event.hosts) == len(placement.hosts)
    )
    return min((found for earlier in same if (found := step_s(rows, earlier)) is not None), default=None)
