"""The nodes of a running attempt on a screen: their load, their ranks' steps, and the ranks that delay the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from torusrun.orchestrator.base.shown.numbers import seconds, size
from torusrun.orchestrator.base.shown.table import Column, Long, Table
from torusrun.orchestrator.base.terminal.plain import cut, plain
from torusrun.orchestrator.run.folder.at_work import GpuLoad, NodeLoad, RankSteps, host_pulse_s
from torusrun.orchestrator.run.state.pace import short

SILENT_S = 30.0  # of few nodes; of many, TIMES_PULSE times what lies between two signs of life
TIMES_PULSE = 3
LEAST_NAME = 12


@dataclass(frozen=True)
class NodeHeard:
    """A node of a running attempt: its load, and the ages of its wrapper's last sign of life and of a rank's last line.

    An age is None before the first of them. The clock is the file system's, which may differ from this machine's.
    """

    host: str
    ranks: Sequence[int]
    heard_s: float | None
    wrote_s: float | None
    load: NodeLoad | None = None
    of_hosts: int = 1  # the hosts of the attempt
    labels: Mapping[int, str] = field(default_factory=dict)  # 'rollout 0' of its ranks, in a run with roles

    @property
    def silent(self) -> bool:
        return self.heard_s is None or self.heard_s > max(SILENT_S, TIMES_PULSE * host_pulse_s(self.of_hosts))

    @property
    def slowest(self) -> RankSteps | None:
        """The rank of this node that computes longest; if that is unknown, the rank with the longest steps."""
        known = self.load.ranks if self.load else ()
        return max(known, key=lambda rank: (rank.computed_s or 0.0, rank.step_s), default=None)


@dataclass(frozen=True)
class NodeRow:
    """A line of the table: a node, or one of its ranks."""

    name: str
    heard: Long
    load: NodeLoad | None
    gpus: Sequence[GpuLoad]
    steps: RankSteps | None


def ordered(nodes: Sequence[NodeHeard], slow: Sequence[str] = ()) -> list[NodeHeard]:
    """The nodes that are silent longest first, then those with `slow` ranks, then the rest in the order of ranks."""

    def key(node: NodeHeard) -> tuple[float, int, int]:
        silent_s = float("inf") if node.heard_s is None else node.heard_s if node.silent else 0.0
        return -silent_s, slow.index(node.host) if node.host in slow else len(slow), min(node.ranks, default=0)

    return sorted(nodes, key=key)


def table(nodes: Sequence[NodeHeard], width: int, *, ranks: bool = False) -> Table[NodeRow]:
    """A line for each node, and with `ranks` a line for each rank below it; names fit a terminal of `width` columns."""
    most = max(LEAST_NAME, width // 4)
    rows = []
    for node in nodes:
        rows.append(_of_node(node, most))
        rows += [_of_rank(node, place) for place in range(len(node.ranks))] if ranks and len(node.ranks) > 1 else []
    return Table(COLUMNS, rows)


def _of_node(node: NodeHeard, most: int) -> NodeRow:
    heard = "not yet" if node.heard_s is None else f"{short(node.heard_s)} ago"
    wrote = "" if node.wrote_s is None else f", wrote {short(node.wrote_s)} ago"
    whole = f"{heard}{wrote}, {_ranks(node)}"
    gpus = node.load.gpus if node.load else ()
    return NodeRow(cut(plain(node.host), most), Long(whole, heard), node.load, gpus, node.slowest)


def _of_rank(node: NodeHeard, place: int) -> NodeRow:
    """A row for a rank of a node; it has its own GPU if the node has as many GPUs as ranks."""
    number, load = node.ranks[place], node.load
    steps = next((known for known in load.ranks if known.rank == number), None) if load else None
    gpus = load.gpus[place : place + 1] if load and len(load.gpus) == len(node.ranks) else ()
    late_s = load.at_s - steps.told_s if load and steps else 0.0
    heard = f"at step {steps.step}, reported {short(late_s)} earlier" if steps else ""
    return NodeRow(f"  {node.labels.get(number, f'rank {number}')}", Long(heard), None, gpus, steps)


def _ranks(node: NodeHeard) -> str:
    """'ranks 4-7', or in a run with roles 'trainer 4-6, rollout 0'."""
    if not node.labels:
        return f"rank{'s' if len(node.ranks) > 1 else ''} {_folded(node.ranks)}"
    own: dict[str, list[int]] = {}
    for rank in node.ranks:
        role, _, number = node.labels.get(rank, f"rank {rank}").rpartition(" ")
        own.setdefault(role, []).append(int(number))
    return ", ".join(f"{role} {_folded(numbers)}" for role, numbers in own.items())


def _folded(ranks: Sequence[int]) -> str:
    """Ranks in short: '4-7', or '0, 2' if they are not consecutive."""
    whole = len(ranks) > 2 and list(ranks) == list(range(ranks[0], ranks[-1] + 1))
    return f"{ranks[0]}-{ranks[-1]}" if whole else ", ".join(map(str, ranks))


def _of_known(combine: Callable[[list[float]], float], values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return combine(known) if known else None


def _fullest(gpus: Sequence[GpuLoad]) -> GpuLoad | None:
    return max(gpus, key=lambda gpu: gpu.memory_bytes or 0.0, default=None)


def _memory(load: NodeLoad | GpuLoad | None) -> str | None:
    """The memory in use: '3.1/24G', or '3.1G' if the total is unknown."""
    if load is None or load.memory_bytes is None:
        return None
    used, total = load.memory_bytes, load.memory_total_bytes
    return f"{size(used)}/{size(total)}" if total else size(used)


SHARE = "{:.0%}".format
COLUMNS: tuple[Column[NodeRow], ...] = (
    Column("NODE", lambda row: row.name, right=False),
    Column("CPU", lambda row: row.load and row.load.busy, SHARE, left_out=11),
    Column("MEMORY", lambda row: _memory(row.load), left_out=6),
    Column("GPU", lambda row: _of_known(fmean, (gpu.busy for gpu in row.gpus)), SHARE, left_out=10),
    Column("GPU MEM", lambda row: _memory(_fullest(row.gpus)), left_out=4),
    Column("WATTS", lambda row: _of_known(sum, (gpu.power_w for gpu in row.gpus)), "{:.0f}".format, left_out=1),
    Column("STEP S", lambda row: row.steps and row.steps.step_s, seconds, left_out=7),
    Column("COMPUTE S", lambda row: row.steps and row.steps.computed_s, seconds, left_out=9),
    Column("WAIT", lambda row: row.steps and row.steps.waited, SHARE, left_out=2),
    Column("HEARD", lambda row: row.heard, right=False),
)
