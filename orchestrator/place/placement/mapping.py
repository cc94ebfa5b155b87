"""A grid on hosts: rank -> (host, local rank, position in the grid), and the check of a rank's place."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.place.hosts.same_host import same_host
from torusrun.orchestrator.place.placement.grid import MOST_LEVELS, Grid
from torusrun.training.counted import counted, first_of

ROLE = re.compile(r"[a-z][a-z0-9_]{0,30}")


@dataclass(frozen=True)
class Slot:
    """One rank's place; `at` is its position on each level of the grid, () in a role that has no grid."""

    rank: int
    host: str
    local_rank: int  # among the ranks of all roles on its host
    at: tuple[int, ...]
    role: str = ""  # '' in a run without roles


@dataclass(frozen=True)
class Placement:
    """The slot of every rank, in rank order: first the ranks of the grid, then those of other roles."""

    grid: Grid
    slots: tuple[Slot, ...]

    @property
    def hosts(self) -> list[str]:
        """The hosts in the order in which ranks fill them."""
        return list(dict.fromkeys(slot.host for slot in self.slots))

    def of_role(self, role: str) -> tuple[Slot, ...]:
        """The slots of a role, in order; all of them for '' in a run without roles."""
        return tuple(slot for slot in self.slots if slot.role == role)

    @property
    def hostfile(self) -> str:
        """One host per rank, in rank order; all launchers read this form."""
        return "".join(f"{slot.host}\n" for slot in self.slots)

    def as_json(self) -> dict[str, Any]:
        slots = [[s.rank, s.host, s.local_rank, *s.at] for s in self.slots]
        roles = [slot.role for slot in self.slots if slot.role]
        return {"schema": 1, "grid": list(self.grid.dims), "slots": slots, **({"roles": roles} if roles else {})}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Placement:
        """The placement that `as_json` returned. Raises KeyError, TypeError or ValueError if it is none."""
        dims = tuple(value["grid"])
        if not 0 < len(dims) <= MOST_LEVELS or not all(type(size) is int and size > 0 for size in dims):
            raise ValueError("it has no grid")
        roles = value.get("roles") or [""] * len(value["slots"])
        rows = zip(value["slots"], roles, strict=True)
        return cls(Grid(dims), tuple(_slot(role, *row) for row, role in rows))


def _slot(role: str, rank: int, host: str, local_rank: int, *at: int) -> Slot:
    # Another user's run must not lead to files elsewhere by a role's name.
    sound = type(host) is str and all(type(number) is int for number in (rank, local_rank, *at))
    if not sound or (role and not ROLE.fullmatch(role)):
        raise ValueError("it has a slot that is none")
    return Slot(rank, host, local_rank, at, role)


def place(grid: Grid, hosts: Sequence[str], ranks_per_node: int) -> Placement:
    """Fill the hosts in the given order, with `ranks_per_node` consecutive ranks on each.

    Raises SiteError unless the number of hosts is exactly what the grid needs.
    """
    order = list(dict.fromkeys(hosts))
    if len(order) * ranks_per_node != grid.ranks:
        raise SiteError(
            f"the scheduler allocated {counted(len(order), 'host')} ({first_of(order)}); a grid of {grid} with "
            f"{counted(ranks_per_node, 'rank')} per node needs {grid.ranks // ranks_per_node}"
        )
    places = (divmod(rank, ranks_per_node) for rank in range(grid.ranks))
    slots = (Slot(rank, order[host], local_rank, grid.at(rank)) for rank, (host, local_rank) in enumerate(places))
    return Placement(grid, tuple(slots))


def misplaced(placement: Placement, rank: int, host: str, local_rank: int) -> str | None:
    """Why `rank` must not run as `local_rank` on `host`, with both places; None if it may."""
    if not 0 <= rank < len(placement.slots):
        return f"the launcher started a rank {rank}, but the placement has ranks 0 to {len(placement.slots) - 1}"
    slot = placement.slots[rank]
    if same_host(slot.host, host) and slot.local_rank == local_rank:
        return None
    return (
        f"rank {rank} runs on {host} as local rank {local_rank}, but the placement puts it on {slot.host} "
        f"as local rank {slot.local_rank}: the launcher did not keep the order"
    )
