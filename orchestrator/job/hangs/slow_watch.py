"""Records which ranks compute longer than the others, from the records of their nodes."""

from __future__ import annotations

import contextlib

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.job.load.monitor import LEAST_S, MOST_PER_S
from torusrun.orchestrator.place.placement.mapping import Placement
from torusrun.orchestrator.run.folder.at_work import NodeLoad, Slow, slow_ranks
from torusrun.orchestrator.run.folder.run_folder import Attempt

CONFIRMED = 2  # looks that must agree on the ranks


class SlowWatch:
    """Reads the records as often as they are written, and keeps `ranks/slow.json`, which `status` reads."""

    def __init__(self, attempt: Attempt, placement: Placement) -> None:
        self._attempt = attempt
        self._first = {slot.host: slot.rank for slot in placement.slots if slot.local_rank == 0}
        self._every_s = max(LEAST_S, len(self._first) / MOST_PER_S)
        self._due_s = 0.0
        self._agreed, self._seen = 0, frozenset[int]()
        self._written = frozenset[int]()

    def look(self, now_s: float) -> None:
        """Read the records if they are due, and record a change that CONFIRMED looks agree on."""
        if now_s < self._due_s:
            return
        self._due_s = now_s + self._every_s
        loads = {host: NodeLoad.read(self._attempt.node_load(rank)) for host, rank in self._first.items()}
        found = slow_ranks({host: load.ranks for host, load in loads.items() if load})
        ranks = frozenset(found.ranks if found else ())
        self._agreed = self._agreed + 1 if ranks == self._seen else 1
        self._seen = ranks
        if self._agreed >= CONFIRMED and ranks != self._written:
            self._record(found)
            self._written = ranks

    def _record(self, found: Slow | None) -> None:
        with contextlib.suppress(SiteError, OSError):  # a full disk
            if found:
                found.write(self._attempt.slow)
            else:
                self._attempt.slow.unlink(missing_ok=True)
