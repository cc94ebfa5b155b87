"""Ends the services of an attempt once its main role has ended, in the reverse order of their start."""

from __future__ import annotations

from collections.abc import Mapping

from torusrun.orchestrator.base.json_files import write_json
from torusrun.orchestrator.keys.main_role import services
from torusrun.orchestrator.place.placement.mapping import Placement
from torusrun.orchestrator.run.folder.records import RankEnd
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.plan.roles import order


class Services:
    """The services of an attempt, as the supervisor ends them."""

    def __init__(self, plan: Plan, attempt: Attempt, placement: Placement) -> None:
        self._attempt = attempt
        named = services(plan.run)
        self._left = [name for name in reversed(order(plan.run)) if name in named]
        self._ranks = {name: [slot.rank for slot in placement.of_role(name)] for name in self._left}
        self._main = range(placement.grid.ranks)
        self._told: list[str] = []
        self.longest_s = len(self._left) * plan.site.kill_after_s  # from the end of the main role to that of the last

    def look(self, ends: Mapping[int, RankEnd]) -> None:
        """Tell the next service to stop if the main role, and those that were told before, have ended.

        Raises SiteError if that cannot be written.
        """
        while self._left and all(rank in ends for rank in self._awaited()):
            self._told.append(self._left.pop(0))
            write_json(self._attempt.roles_over, {"roles": self._told})

    def _awaited(self) -> list[int]:
        return [*self._main, *(rank for name in self._told for rank in self._ranks[name])]
