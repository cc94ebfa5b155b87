"""The placement of a plan on given hosts: the map, the order compared with other orders and bounds, and other grids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.shown.numbers import ms
from torusrun.orchestrator.base.shown.table import Column, Table
from torusrun.orchestrator.place.hosts.hostlist import fold
from torusrun.orchestrator.place.hosts.model import Cluster
from torusrun.orchestrator.place.placement import choose
from torusrun.orchestrator.place.placement.arrange import Arrangement
from torusrun.orchestrator.place.placement.binding import bindings
from torusrun.orchestrator.place.placement.choose import Choice
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.run.plan.auto_grid import best_grids, placed, with_grid
from torusrun.orchestrator.run.plan.forecast import PLACED
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.plan.rates import charge_of, summed
from torusrun.orchestrator.schedulers.topology import ExpectedHosts, cluster
from torusrun.orchestrator.show.map import Map, map_of
from torusrun.training.counted import counted

SHOWN = 3


@dataclass(frozen=True)
class Outlook:
    """A plan placed on hosts, with the alternatives: the best grids of one to three levels."""

    plan: Plan
    hosts: ExpectedHosts  # of which the plan may use a part
    arrangement: Arrangement
    compared: tuple[choose.OrderRow, ...]
    grids: tuple[Choice, ...]
    summed: str

    @property
    def cluster(self) -> Cluster:
        return self.hosts.cluster

    @property
    def map(self) -> Map:
        return map_of(self.arrangement, self.cluster)

    def text(self) -> str:
        return "\n".join(
            [
                self.map.text(),
                "",
                f"one all-reduce of {self.summed}, predicted:",
                *_orders(self.compared).lines(),
                self._certificate(),
                "",
                "the same all-reduce in other shapes:",
                *(f"  {Grid(choice.dims)!s:14}{ms(choice.total_s):>8} ms" for choice in self.grids[:SHOWN]),
                *([f"spares      {fold(self.arrangement.spares)}"] if self.arrangement.spares else []),
            ]
        )

    def _certificate(self) -> str:
        over = self.arrangement.over_bound
        if self.arrangement.optimal:
            return "proved: no placement of this grid on these hosts is better"
        return f"the largest load is at most {over:.3f} times that of the best placement of this grid"

    def as_json(self) -> dict[str, Any]:
        bound = bindings(self.cluster.node, self.arrangement.rings.ranks_per_node)
        return {
            **self.map.as_json(),
            "spares": list(self.arrangement.spares),
            "local_ranks": [asdict(binding) for binding in bound],
            "optimal": self.arrangement.optimal,
            "over_bound": self.arrangement.over_bound,
            "orders": _orders(self.compared).as_json(),
            "grids": [{"dims": list(choice.dims), "all_reduce_s": choice.total_s} for choice in self.grids],
        }


def outlook(plan: Plan, hosts: Sequence[str]) -> Outlook:
    """Place `plan` on `hosts`. Raises UserError if the site has no topology, or if there are too few hosts."""
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
    on = ExpectedHosts(tuple(given), known, PLACED)
    grids, charge = best_grids(plan, on), charge_of(plan)
    arrangement = placed(plan, on, grids)
    return Outlook(
        plan,
        on,
        arrangement,
        tuple(choose.rows(arrangement, known, charge.size_bytes, charge.backend, plan.run.train.sync)),
        grids,
        summed(plan),
    )


def _orders(rows: Sequence[choose.OrderRow]) -> Table[choose.OrderRow]:
    """The all-reduce in each order, the load of its hottest link, and the ratio to the first row."""
    ours_s = rows[0].all_reduce_s
    columns: list[Column[choose.OrderRow]] = [
        Column("order", lambda row: row.order, key="order"),
        Column("all-reduce ms", lambda row: row.all_reduce_s, ms, key="all_reduce_s"),
        Column("x ours", lambda row: row.all_reduce_s / ours_s if ours_s else 1.0, "{:.2f}".format),
        Column("hop-bytes", lambda row: row.hop_bytes, "{:.1f}".format, key="hop_bytes_per_byte"),
        Column("hottest link, ms per 100 MB", _hottest, right=False),
        Column(None, lambda row: row.largest_s_per_byte, key="largest_s_per_byte"),
        Column(None, lambda row: row.hottest, key="hottest"),
    ]
    return Table(columns, rows, empty="")


def _hottest(row: choose.OrderRow) -> str:
    return f"{row.largest_s_per_byte * 1e11:.2f} {row.hottest}"
