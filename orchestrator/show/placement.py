"""The placement of a plan on given hosts as a value: the map of racks and links, other orders, bounds, other grids."""

from __future__ import annotations

import string
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import groupby
from typing import Any

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.shown.numbers import ms
from torusrun.orchestrator.base.shown.table import Column, Table
from torusrun.orchestrator.place.hosts.hostlist import fold, number_ranges
from torusrun.orchestrator.place.hosts.model import Cluster
from torusrun.orchestrator.place.placement import choose
from torusrun.orchestrator.place.placement.arrange import Arrangement
from torusrun.orchestrator.place.placement.binding import bindings
from torusrun.orchestrator.place.placement.choose import Choice
from torusrun.orchestrator.place.placement.fabric import LinkLoad, Loads, loads
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.place.placement.rings import Rings
from torusrun.orchestrator.run.plan.auto_grid import best_grids, placed, with_grid
from torusrun.orchestrator.run.plan.forecast import PLACED
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.plan.rates import charge_of, summed
from torusrun.orchestrator.schedulers.topology import ExpectedHosts, cluster
from torusrun.training.counted import counted

UNIT = "ms per 100 MB"  # of gradients: how long a link is busy
MARKS = string.ascii_uppercase + string.ascii_lowercase + string.digits
BAR, WIDEST, MOST_ROWS, MOST_LINKS, MOST_RANGES = 24, 72, 24, 32, 4  # of the text


def unit_ms(load: LinkLoad) -> float:
    """Milliseconds that the link is busy per 100 MB of gradients."""
    return load.s_per_byte * 1e11


@dataclass(frozen=True)
class Order:
    """Hosts on the positions of the grid, and the loads of the links."""

    name: str
    hosts: tuple[str, ...]
    loads: Loads

    @cached_property
    def link(self) -> Mapping[str, LinkLoad]:
        """The load of every link by the name of the host or switch below it. A switch without load carries nothing."""
        return {load.name: load for load in self.loads.links}


@dataclass(frozen=True)
class Map:
    """Racks (leaf switches) with their hosts, in the order in which the first order fills them.

    `above` are the higher switches whose uplinks carry something. The first order is torusrun's own.
    """

    rings: Rings
    racks: Mapping[str, tuple[str, ...]]
    above: tuple[str, ...]
    orders: tuple[Order, ...]

    @property
    def row(self) -> int:
        """The nodes in a row of the torus; 1 if rows end inside nodes, or nodes are a ring."""
        return self.rings.torus[0] if self.rings.torus else 1

    @cached_property
    def _marks(self) -> Mapping[str, str]:
        """A letter for each rack."""
        return {name: MARKS[i % len(MARKS)] for i, name in enumerate(self.racks)}

    def text(self) -> str:
        """The rows of nodes by their racks, and every uplink's time in each order; '<' marks the hottest link."""
        rows = [*self._rows()]
        return "\n".join([self._head(), *(rows if len(rows) <= MOST_ROWS else []), "", *self._links(len(rows))])

    def as_json(self) -> dict[str, Any]:
        """The hosts in order, and all links with their loads."""
        ours = self.orders[0]
        return {
            "hosts": list(ours.hosts),
            "links": [
                {
                    "name": load.name,
                    "kind": load.kind,
                    "hosts": load.hosts,
                    "bandwidth_bytes_per_s": load.link.bandwidth_bytes_per_s,
                    "bytes_per_byte": list(load.levels),
                }
                for load in ours.loads.links
            ],
        }

    def _head(self) -> str:
        rings = self.rings
        row = "a row to a line" if len(rings.dims) < 3 else "a group to a line"
        if self.row == 1:
            row = "nodes in the order of ranks"
        return f"{Grid(rings.dims).words}, {counted(rings.ranks_per_node, 'rank')} to a node; {row}"

    def _rows(self) -> Iterator[str]:
        mark = {host: self._marks[name] for name, hosts in self.racks.items() for host in hosts}
        marks, length, number = [mark[host] for host in self.orders[0].hosts], self.row if self.row > 1 else 8, 0
        for row, group in groupby(marks[i : i + length] for i in range(0, len(marks), length)):
            count = len(list(group))
            shown = (" " if length <= WIDEST // 2 else "").join(row)
            shown = shown if len(shown) <= WIDEST else f"{shown[: WIDEST - 3]}..."
            yield f"{number:5}  {shown}{f'   x {count}' if count > 1 else ''}"
            number += count

    def _links(self, rows: int) -> list[str]:
        """A line for every switch, and a line for the hosts' own links; of many, the hottest."""
        ours, own = self.orders[0], self._own()
        names = [*self.racks, *self.above]
        shown = sorted(names, key=lambda name: -_ms(ours, name))[:MOST_LINKS] if len(names) > MOST_LINKS else names
        places = _places(ours, self.racks) if rows > MOST_ROWS else {}
        nodes = {name: len(hosts) for name, hosts in self.racks.items()}
        columns: list[Column[str]] = [
            *([] if places else [Column("", lambda name: self._marks.get(name, ""))]),
            Column("uplink of", lambda name: name if name != own else f"(own link of {own})", right=False),
            Column("nodes", nodes.get),
            *([Column("in the order", places.get, right=False)] if places else []),
            Column(UNIT, partial(_ms, ours), "{:.2f}".format),
            Column("", self._bar, right=False),
            *(Column(order.name, partial(_ms, order), "{:.2f}".format) for order in self.orders[1:]),
        ]
        left_out = sorted(_ms(ours, name) for name in {*names} - {*shown})
        more = [f"{len(left_out)} more: {left_out[0]:.2f} to {left_out[-1]:.2f} {UNIT}"] if left_out else []
        return [*Table(columns, [*shown, *([own] if own else [])], empty="").lines(), *more]

    def _own(self) -> str:
        """The host whose own link is the hottest of all hosts'; '' if no host sends anything."""
        hottest = max((load for load in self.orders[0].loads.links if load.kind == "host"), key=unit_ms, default=None)
        return hottest.name if hottest and hottest.bytes_per_byte else ""

    def _bar(self, name: str) -> str:
        hottest = self.orders[0].loads.hottest
        if hottest is None or not hottest.bytes_per_byte:
            return ""
        bar = "#" * round(BAR * _ms(self.orders[0], name) / unit_ms(hottest))
        return f"{bar or '.'}{'  < hottest' if name == hottest.name else ''}"


def map_of(arrangement: Arrangement, cluster: Cluster) -> Map:
    """The map of an arrangement and, if it differs, of the alphabetical order of the same hosts."""
    rings, ours = arrangement.rings, arrangement.hosts
    racks: dict[str, list[str]] = defaultdict(list)
    for name, host in zip(ours, cluster.only(ours), strict=True):
        racks[host.leaf].append(name)
    orders = [Order("by the network", ours, arrangement.loads)]
    named = tuple(sorted(ours))
    if named != ours:
        orders.append(Order("alphabetical", named, loads(rings.levels, cluster, named)))
    used = [load.name for load in arrangement.loads.links if load.kind == "uplink"]
    above = tuple(name for name in used if name not in racks)
    return Map(rings, {name: tuple(hosts) for name, hosts in racks.items()}, above, tuple(orders))


def _ms(order: Order, name: str) -> float:
    load = order.link.get(name)
    return unit_ms(load) if load else 0.0


def _places(order: Order, racks: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The positions of the hosts of each rack, as '0-11, 24-30'."""
    position = {host: i for i, host in enumerate(order.hosts)}
    return {name: _folded(sorted(position[host] for host in hosts)) for name, hosts in racks.items()}


def _folded(numbers: Sequence[int]) -> str:
    shown = [*number_ranges([*map(str, numbers)])]
    return ", ".join(shown[:MOST_RANGES]) + (f", {len(shown) - MOST_RANGES} more" if len(shown) > MOST_RANGES else "")


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
    if len(given) < plan.all_nodes:
        raise UserError(
            f"the run takes {counted(plan.all_nodes, 'node')}; --hosts has {len(given)}: {fold(given)[:200]}"
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

    def hottest(row: choose.OrderRow) -> str:
        return f"{row.largest_s_per_byte * 1e11:.2f} {row.hottest}"

    columns: list[Column[choose.OrderRow]] = [
        Column("order", lambda row: row.order, key="order"),
        Column("all-reduce ms", lambda row: row.all_reduce_s, ms, key="all_reduce_s"),
        Column("x ours", lambda row: row.all_reduce_s / ours_s if ours_s else 1.0, "{:.2f}".format),
        Column("hop-bytes", lambda row: row.hop_bytes, "{:.1f}".format, key="hop_bytes_per_byte"),
        Column("hottest link, ms per 100 MB", hottest, right=False),
        Column(None, lambda row: row.largest_s_per_byte, key="largest_s_per_byte"),
        Column(None, lambda row: row.hottest, key="hottest"),
    ]
    return Table(columns, rows, empty="")
