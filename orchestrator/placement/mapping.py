"""A grid laid on hosts: rank -> (host, local rank, x, y), and the check that a rank stands where it was put."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import SiteError
from orchestrator.placement.grid import Grid


@dataclass(frozen=True)
class Seat:
    """One rank's place."""

    rank: int
    host: str
    local_rank: int
    x: int
    y: int


@dataclass(frozen=True)
class Placement:
    """Every rank's seat, in rank order."""

    grid: Grid
    seats: tuple[Seat, ...]

    @property
    def hosts(self) -> list[str]:
        """The hosts in the order in which ranks fill them."""
        return list(dict.fromkeys(seat.host for seat in self.seats))

    def as_json(self) -> dict[str, Any]:
        seats = [[s.rank, s.host, s.local_rank, s.x, s.y] for s in self.seats]
        return {"schema": 1, "grid": [self.grid.x, self.grid.y], "seats": seats}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Placement:
        return cls(Grid(*value["grid"]), tuple(Seat(*seat) for seat in value["seats"]))


def place(grid: Grid, hosts: Sequence[str], ranks_per_node: int) -> Placement:
    """Fill the hosts in the order given, `ranks_per_node` consecutive ranks on each.

    Raises SiteError when the hosts given are not as many as the grid needs.
    """
    order = list(dict.fromkeys(hosts))
    if len(order) * ranks_per_node != grid.ranks:
        raise SiteError(
            f"the scheduler gave {len(order)} hosts ({', '.join(order)}); a grid of {grid} with {ranks_per_node} "
            f"ranks per node needs {grid.ranks // ranks_per_node}"
        )
    return Placement(
        grid,
        tuple(
            Seat(rank, order[rank // ranks_per_node], rank % ranks_per_node, rank % grid.x, rank // grid.x)
            for rank in range(grid.ranks)
        ),
    )


def misplaced(placement: Placement, rank: int, host: str, local_rank: int) -> str | None:
    """Why `rank` must not run as `local_rank` on `host`, with both places named; None if it may."""
    if not 0 <= rank < len(placement.seats):
        return f"the launcher started a rank {rank}, but the placement has ranks 0 to {len(placement.seats) - 1}"
    seat = placement.seats[rank]
    if same_host(seat.host, host) and seat.local_rank == local_rank:
        return None
    return (
        f"rank {rank} runs on {host} as local rank {local_rank}, but the placement puts it on {seat.host} "
        f"as local rank {seat.local_rank}: the launcher did not keep the order"
    )


def same_host(a: str, b: str) -> bool:
    """Whether two names mean one host: equal, or equal up to a domain that only one of them has."""
    if "." in a and "." in b:
        return a == b
    return a.partition(".")[0] == b.partition(".")[0]
