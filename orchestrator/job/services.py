"""Ends the services of an attempt once its main role has ended, in the reverse order of their start.

A role that judges each checkpoint then judges what is left, unless the main role is not done or the run has to stop.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from torusrun.orchestrator.base.json_files import write_json
from torusrun.orchestrator.keys.main_role import services
from torusrun.orchestrator.keys.run import RunSpec
from torusrun.orchestrator.place.placement.mapping import Placement
from torusrun.orchestrator.run.folder.records import LOST_S, SILENT, WAITING, RankEnd
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.plan.roles import order
from torusrun.orchestrator.run.program.progress import pattern_of
from torusrun.orchestrator.run.program.what_runs import MetricsSource
from torusrun.orchestrator.run.state.roles import Checked, read


def sources(run: RunSpec, attempt: Attempt, placement: Placement) -> Iterator[tuple[str, MetricsSource, Path]]:
    """Where the progress of each service is read: its name, its source, and the log of its first rank."""
    for name, role in services(run).items():
        pattern = pattern_of(role.metrics.pattern, by_checkpoint=bool(role.each))
        log = attempt.rank_log(placement.of_role(name)[0].rank)
        yield name, MetricsSource(str(attempt.role_metrics(name)), pattern), log


class Services:
    """The services of an attempt, as the supervisor ends them."""

    def __init__(self, plan: Plan, attempt: Attempt, placement: Placement) -> None:
        self._attempt = attempt
        named = services(plan.run)
        self._left = [name for name in reversed(order(plan.run)) if name in named]
        self._ranks = {name: [slot.rank for slot in placement.of_role(name)] for name in self._left}
        self._main = range(placement.grid.ranks)
        self._told: list[str] = []
        self._stop = False
        self._alive = {name: role.alive for name, role in named.items()}
        self.judges = frozenset(rank for name, ranks in self._ranks.items() if named[name].each for rank in ranks)
        self.longest_s = len(self._left) * plan.site.kill_after_s  # from the end of the main role to that of the last

    def look(self, ends: Mapping[int, RankEnd], stop: bool = False) -> None:
        """Tell the next service to stop if the main role, and those that were told before, have ended.

        No checkpoint is judged any more if the attempt has to `stop`. Raises SiteError if that cannot be written.
        """
        before = (len(self._told), self._stop)
        while self._left and all(rank in ends for rank in self._awaited()):
            self._told.append(self._left.pop(0))
        undone = any(rank in ends and not ends[rank].good for rank in self._main)
        self._stop = bool(self.judges) and (stop or undone or self._stop)
        if before != (len(self._told), self._stop):
            write_json(self._attempt.roles_over, {"roles": self._told, "stop": self._stop})

    def main_ended(self, ends: Mapping[int, RankEnd]) -> bool:
        """Whether all ranks of the main role have ended."""
        return all(rank in ends for rank in self._main)

    def awaited(self) -> bool:
        """Whether a service begins, or is silent and ends by that: the main role may wait for it until its limit."""
        for name, alive in self._alive.items():
            if seen := read(self._attempt.role_state(name), Checked):
                limits_s = {WAITING: seen.within_s, SILENT: LOST_S if alive else 0.0}
                if time.time() < seen.t + limits_s.get(seen.state, 0.0):
                    return True
        return False

    def _awaited(self) -> list[int]:
        return [*self._main, *(rank for name in self._told for rank in self._ranks[name])]
