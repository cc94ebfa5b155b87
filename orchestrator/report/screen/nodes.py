"""The nodes of a running attempt on a screen: what each does, how its ranks step, and who makes the others wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from orchestrator.base.terminal.columns import EMPTY, Column, TableRow, table
from orchestrator.base.terminal.plain import plain
from orchestrator.base.terminal.width import cut
from orchestrator.runs.folder.node_load import GpuLoad, NodeLoad, RankSteps
from orchestrator.runs.state.pace import short

SILENT_S = 30.0  # a wrapper shows every 10 s that its node lives
TIMES_USUAL = 1.25  # a rank that computes so much longer than the median makes the others wait
LEAST_NAME = 12
COLUMNS = (
    Column("NODE"),
    Column("CPU", right=True, left_out=11),
    Column("MEMORY", right=True, left_out=6),
    Column("GPU", right=True, left_out=10),
    Column("GPU MEM", right=True, left_out=4),
    Column("WATTS", right=True, left_out=1),
    Column("IN/S", right=True, left_out=5),
    Column("OUT/S", right=True, left_out=3),
    Column("STEP S", right=True, left_out=7),
    Column("COMPUTE S", right=True, left_out=9),
    Column("WAIT", right=True, left_out=2),
)
LAST = "HEARD"


@dataclass(frozen=True)
class NodeHeard:
    """A node of a running attempt: its load, and how long ago its wrapper showed that it lives and a rank wrote a line.

    None where it never did. By the clock of the file system, which may differ from that of this machine.
    """

    host: str
    ranks: Sequence[int]
    heard_s: float | None
    wrote_s: float | None
    load: NodeLoad | None = None

    @property
    def silent(self) -> bool:
        return self.heard_s is None or self.heard_s > SILENT_S

    @property
    def slowest(self) -> RankSteps | None:
        """The rank of this node that computes longest; where that is not known, the one with the longest steps."""
        known = self.load.ranks if self.load else ()
        return max(known, key=lambda rank: (rank.computed_s or 0.0, rank.step_s), default=None)


def ordered(nodes: Sequence[NodeHeard]) -> list[NodeHeard]:
    """Those of which least is heard first, then those that make others wait, then the rest in the order of ranks."""
    usual_s = _usual_s(nodes)

    def key(node: NodeHeard) -> tuple[float, float, int]:
        silent_s = float("inf") if node.heard_s is None else node.heard_s if node.silent else 0.0
        late_s = node.slowest.computed_s or 0.0 if node.slowest else 0.0
        late = usual_s is not None and late_s > TIMES_USUAL * usual_s
        return -silent_s, -late_s if late else 0.0, min(node.ranks, default=0)

    return sorted(nodes, key=key)


def remark(nodes: Sequence[NodeHeard]) -> str:
    """'rank 3 computes 1.8 times as long as the median, and the others wait for it', or '' where none does."""
    usual_s = _usual_s(nodes)
    ranks = [(node.slowest, node.host) for node in nodes if node.slowest and node.slowest.computed_s]
    if usual_s is None or not ranks:
        return ""
    rank, host = max(ranks, key=lambda found: found[0].computed_s or 0.0)
    times = (rank.computed_s or 0.0) / usual_s
    if times <= TIMES_USUAL:
        return ""
    return f"rank {rank.rank} ({plain(host)}) computes {times:.1f} times as long as the median; the others wait for it"


def lines(nodes: Sequence[NodeHeard], width: int, *, ranks: bool = False) -> list[str]:
    """The titles, a line for each node, and with `ranks` one for each rank below it, in at most `width` columns."""
    most = max(LEAST_NAME, width // 4)
    rows = []
    for node in nodes:
        heard, more = _heard(node)
        rows.append(TableRow((cut(plain(node.host), most), *_cells(node)), f"{heard}{more}", heard))
        rows += [_of_rank(node, place) for place in range(len(node.ranks))] if ranks and len(node.ranks) > 1 else []
    return [cut(line, width) for line in table(COLUMNS, LAST, rows, width)]


def _usual_s(nodes: Sequence[NodeHeard]) -> float | None:
    """The median of the times that ranks compute in a step; None where fewer than two are known."""
    ranks = [rank for node in nodes if node.load for rank in node.load.ranks]
    known = [rank.computed_s for rank in ranks if rank.computed_s is not None]
    return median(known) if len(known) > 1 and median(known) > 0 else None


def _cells(node: NodeHeard) -> tuple[str, ...]:
    load = node.load
    if load is None:
        return (EMPTY,) * (len(COLUMNS) - 1)
    return (
        _percent(load.busy),
        _of(load.memory_bytes, load.memory_total_bytes),
        *_gpus(load.gpus),
        size(sum(link.in_bytes_per_s for link in load.links)) if load.links else EMPTY,
        size(sum(link.out_bytes_per_s for link in load.links)) if load.links else EMPTY,
        *_steps(node.slowest),
    )


def _of_rank(node: NodeHeard, place: int) -> TableRow:
    """A rank of a node; the GPU is its own where the node has as many as ranks."""
    number = node.ranks[place]
    load = node.load
    steps = next((found for found in load.ranks if found.rank == number), None) if load else None
    gpus = load.gpus[place : place + 1] if load and len(load.gpus) == len(node.ranks) else ()
    cells = (f"  rank {number}", EMPTY, EMPTY, *_gpus(gpus), EMPTY, EMPTY, *_steps(steps))
    late_s = load.at_s - steps.told_s if load and steps else 0.0
    return TableRow(cells, f"at step {steps.step}, reported {short(late_s)} earlier" if steps else "")


def _gpus(gpus: Sequence[GpuLoad]) -> tuple[str, str, str]:
    """The mean share of time, the most memory that one of them has in use, and the power of all."""
    busy = [gpu.busy for gpu in gpus if gpu.busy is not None]
    fullest = max(gpus, key=lambda gpu: gpu.memory_bytes or 0.0, default=None)
    watts = [gpu.power_w for gpu in gpus if gpu.power_w is not None]
    return (
        _percent(sum(busy) / len(busy)) if busy else EMPTY,
        _of(fullest.memory_bytes, fullest.memory_total_bytes) if fullest else EMPTY,
        f"{sum(watts):.0f}" if watts else EMPTY,
    )


def _steps(steps: RankSteps | None) -> tuple[str, str, str]:
    if steps is None:
        return EMPTY, EMPTY, EMPTY
    computed = EMPTY if steps.computed_s is None else seconds(steps.computed_s)
    return seconds(steps.step_s), computed, _percent(steps.waited)


def _heard(node: NodeHeard) -> tuple[str, str]:
    """When the node was heard, and what more is to say where there is room."""
    heard = "not yet" if node.heard_s is None else f"{short(node.heard_s)} ago"
    wrote = "" if node.wrote_s is None else f", wrote {short(node.wrote_s)} ago"
    return heard, f"{wrote}, rank{'s' if len(node.ranks) > 1 else ''} {_folded(node.ranks)}"


def _folded(ranks: Sequence[int]) -> str:
    """'4-7', or '0, 2' where some are left out."""
    whole = len(ranks) > 2 and list(ranks) == list(range(ranks[0], ranks[-1] + 1))
    return f"{ranks[0]}-{ranks[-1]}" if whole else ", ".join(map(str, ranks))


def _percent(share: float | None) -> str:
    return EMPTY if share is None else f"{share:.0%}"


def _of(used: float | None, total: float | None) -> str:
    """'3.1/24G', or '3.1G' where the total is not known."""
    if used is None:
        return EMPTY
    return size(used) if not total else f"{size(used)}/{size(total)}"


def size(count: float) -> str:
    """Bytes in at most five columns, in steps of 1024: '0', '812', '3.1K', '24G'."""
    for unit in ("", "K", "M", "G", "T"):
        if count < 999.5 or unit == "T":
            return f"{count:.1f}{unit}" if unit and count < 9.95 else f"{count:.0f}{unit}"
        count /= 1024
    raise AssertionError


def seconds(value: float) -> str:
    """'0.0123', '1.230', '123'."""
    return f"{value:.4f}" if value < 0.0995 else f"{value:.3f}" if value < 9.995 else f"{value:.0f}"
