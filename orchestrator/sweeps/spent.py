"""What a sweep has cost so far, by the ledgers of its members."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Ended, Started, Submitted
from torusrun.orchestrator.run.folder.run_folder import RunFolder

HOUR_S = 3600.0


@dataclass(frozen=True)
class Spent:
    """The node-hours of all attempts, and the time from the first begin to the last end, or to now."""

    node_hours: float
    wall_s: float


def spent(members: Sequence[RunFolder], over: Collection[str] = ()) -> Spent | None:
    """What these members have cost; None before one begins. Raises SiteError if a ledger cannot be read.

    `over` are the ids of those that are over. Of an attempt that is LOST no end is known: it counts to its last report.
    """
    uses = [use for run in members for use in _uses(run, run.run_id in over)]
    if not uses:
        return None
    node_s = sum(nodes * (end_s - begin_s) for nodes, begin_s, end_s in uses)
    return Spent(node_s / HOUR_S, max(end_s for _, _, end_s in uses) - min(begin_s for _, begin_s, _ in uses))


def _last_report_s(run: RunFolder) -> float:
    """When the run wrote its metrics last; 0 if it never did."""
    try:
        return run.metrics.stat().st_mtime
    except OSError:
        return 0.0


def _uses(run: RunFolder, over: bool) -> Iterator[tuple[int, float, float]]:
    """The nodes of each attempt, when it began, and when it ended. The newest one may lack an end: it counts to now."""
    events = ledger.events(run.ledger)
    begun = [event for event in events if isinstance(event, Started)]
    ends_s = {event.attempt: event.time_s for event in events if isinstance(event, Ended)}
    for event in begun:
        if event.attempt in ends_s or event is begun[-1]:
            lost = over or any(isinstance(one, Submitted) and one.attempt > event.attempt for one in events)
            until_s = _last_report_s(run) if lost else time.time()
            yield len(event.hosts), event.time_s, max(ends_s.get(event.attempt, until_s), event.time_s)
