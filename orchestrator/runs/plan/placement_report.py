"""What a placement of a plan on certain hosts looks like: the order, the loads, the bounds, other grids, drawings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.base.errors import UserError
from orchestrator.network.hosts.hostlist import fold
from orchestrator.network.hosts.model import Cluster
from orchestrator.network.placement import compare
from orchestrator.network.placement.arrange import Arrangement, arrange
from orchestrator.network.placement.binding import Binding, bindings
from orchestrator.network.placement.choose import Choice, choices
from orchestrator.network.placement.picture import picture
from orchestrator.network.placement.svg import svg
from orchestrator.runs.plan.auto_grid import with_grid
from orchestrator.runs.plan.gradient import backend_of, gradient_of, summed
from orchestrator.runs.plan.plan import Plan
from orchestrator.schedulers.topology import cluster
from training.counted import counted

SHOWN = 3


@dataclass(frozen=True)
class Outlook:
    """A plan placed on hosts, beside what else was possible: the best grids of one to three levels."""

    plan: Plan
    cluster: Cluster
    arrangement: Arrangement
    compared: tuple[compare.OrderRow, ...]
    grids: tuple[Choice, ...]
    summed: str

    def text(self) -> str:
        """For a terminal."""
        return "\n".join(
            [
                picture(self.arrangement, self.cluster),
                "",
                f"one all-reduce of {self.summed}, predicted:",
                compare.table(self.compared),
                self._certificate(),
                "",
                *self._others(),
                *([f"spares      {fold(self.arrangement.spares)}"] if self.arrangement.spares else []),
            ]
        )

    def _bindings(self) -> tuple[Binding, ...]:
        return bindings(self.cluster.node, self.arrangement.rings.ranks_per_node)

    def _certificate(self) -> str:
        over = self.arrangement.over_bound
        if self.arrangement.optimal:
            return "proved: no placement of this grid on these hosts is better"
        return f"at most {over:.3f} times the least largest load that a placement of this grid can have"

    def _others(self) -> list[str]:
        lines = ["the same all-reduce in other shapes:"]
        for choice in self.grids[:SHOWN]:
            lines.append(f"  {'x'.join(map(str, choice.dims)):14}{choice.total_s * 1e3:8.2f} ms")
        return lines

    def svg(self) -> str:
        return svg(self.arrangement, self.cluster, self.plan.run.name)

    def as_json(self) -> dict[str, Any]:
        return {
            "hosts": list(self.arrangement.hosts),
            "spares": list(self.arrangement.spares),
            "local_ranks": [asdict(binding) for binding in self._bindings()],
            "optimal": self.arrangement.optimal,
            "over_bound": self.arrangement.over_bound,
            "orders": [row.as_json() for row in self.compared],
            "links": [
                {
                    "name": load.name,
                    "kind": load.kind,
                    "hosts": load.hosts,
                    "bandwidth_bytes_per_s": load.link.bandwidth_bytes_per_s,
                    "bytes_per_byte": list(load.levels),
                }
                for load in self.arrangement.loads.links
            ],
            "grids": [{"dims": list(c.dims), "all_reduce_s": c.total_s} for c in self.grids],
        }


def outlook(plan: Plan, hosts: Sequence[str]) -> Outlook:
    """Place `plan` on `hosts`. Raises UserError when the site has no topology or the hosts are too few."""
    known = cluster(plan.site, hosts)
    if known is None:
        raise UserError(
            f"the site {plan.run.site} has no topology: write 'topology:' into its file, see docs/guides/placement.md"
        )
    given = list(dict.fromkeys(hosts))
    if len(given) < plan.run.nodes:
        raise UserError(
            f"the run takes {counted(plan.run.nodes, 'node')}; --hosts has {len(given)}: {fold(given)[:200]}"
        )
    plan = with_grid(plan, given, known)
    arrangement = arrange(plan.grid.dims, given, plan.ranks_per_node, known)
    (size_bytes, _), backend = gradient_of(plan.run), backend_of(plan)
    return Outlook(
        plan,
        known,
        arrangement,
        tuple(compare.rows(arrangement, known, size_bytes, backend, plan.run.train.sync)),
        tuple(choices(given, plan.ranks_per_node, known, size_bytes, backend, plan.run.nodes, plan.run.train.sync)),
        summed(plan.run),
    )
