"""The grids that torusrun chooses, compared with the grids of the published record runs."""

from __future__ import annotations

from dataclasses import dataclass

from torusrun.orchestrator.place.cost import regular
from torusrun.orchestrator.place.cost.links import Network
from torusrun.orchestrator.place.cost.shapes import divisors
from torusrun.orchestrator.predict.model import schemes
from torusrun.orchestrator.predict.model.compute import Device
from torusrun.orchestrator.predict.model.step import step
from torusrun.orchestrator.predict.model.sweep import BYTES

# (GPUs, (x, y), name): x ranks in a row. Sony's grids, and which side of 48 x 72 is the row, are from memory; Fujitsu's
# is verified (ncclReduceScatter in a node of 4, ncclAllReduce over 512 nodes).
RECORDS: tuple[tuple[int, tuple[int, int], str], ...] = (
    (1024, (32, 32), "Sony"),
    (2048, (32, 64), "Sony"),
    (2048, (4, 512), "Fujitsu"),
    (3456, (48, 72), "Sony"),
)


@dataclass(frozen=True)
class Compared:
    """One grid at one size: an all-reduce with ring columns, with the better columns, and a step's exposed time."""

    gpus: int
    grid: tuple[int, ...]
    whose: str
    ring_columns_s: float
    best_columns_s: float
    exposed_s: float


def compare(network: Network, device: Device, batch: int) -> list[Compared]:
    """For every size of the records: their grids, the best with ring columns, the best, and the least exposed."""
    found = []
    for gpus in sorted({gpus for gpus, _, _ in RECORDS}):
        links = network.holding(gpus)
        named = [
            *((whose, dims) for count, dims, whose in RECORDS if count == gpus),
            ("best with ring columns", schemes.best_grid(links, BYTES, schemes.RING).dims),
            ("best of two levels", schemes.best_grid(links, BYTES).dims),
            ("grid: auto", regular.best(links, BYTES, "nccl").dims),
            ("least exposed", _quiet(links, device, batch).dims),
        ]
        found += [_compared(links, device, batch, dims, whose) for whose, dims in named]
    return found


def _quiet(links: Network, device: Device, batch: int) -> schemes.Scheme:
    """The grid with the least exposed time in a step: a step ends with a small message, which needs few hops."""
    shapes = [schemes.grid(links, (x, links.ranks // x)) for x in divisors(links.ranks)[1:-1]]
    return min(shapes, key=lambda scheme: step(device, batch, scheme.cost_s).exposed_s)


def _compared(links: Network, device: Device, batch: int, dims: tuple[int, ...], whose: str) -> Compared:
    scheme = schemes.grid(links, dims)
    return Compared(
        links.ranks,
        dims,
        whose,
        schemes.grid(links, dims, schemes.RING).cost_s(BYTES),
        scheme.cost_s(BYTES),
        step(device, batch, scheme.cost_s).exposed_s,
    )
