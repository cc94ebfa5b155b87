"""The record of a preflight: the findings on each node and between pairs of nodes (`preflight.json`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path

from torusrun.orchestrator.base.json_files import write_json
from torusrun.orchestrator.base.typed import read_record
from torusrun.training.counted import first_of


class Judgement(str, Enum):
    """The result of one check."""

    GOOD = "good"
    BAD = "bad"
    SKIPPED = "skipped"  # it was not possible, or its value has nothing to be compared with


@dataclass(frozen=True)
class NodeFinding:
    """One check of one node: its value, the value that was `wanted` ('' if there is none), and the result."""

    check: str
    result: Judgement
    value: str
    wanted: str = ""

    @property
    def words(self) -> str:
        """'gpus: 3, wanted 4'."""
        return f"{self.check}: {self.value}{f', wanted {self.wanted}' if self.wanted else ''}"


@dataclass(frozen=True)
class NodeFindings:
    """All checks of one node.

    `links` are compared with those of other nodes: the rates of its InfiniBand adapters, in bytes per second, and the
    PCIe lanes and active NVLinks of its GPUs: 'infiniband mlx5_0' -> 12.5e9, 'pcie 00000000:81:00.0' -> 16.
    """

    host: str
    findings: tuple[NodeFinding, ...] = ()
    links: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class MeasuredPair:
    """The TCP bandwidth between two nodes, the smaller of both directions; 0 and why if it could not be measured."""

    round: int
    first: str
    second: str
    bytes_per_s: float
    failed: str = ""

    @property
    def hosts(self) -> tuple[str, str]:
        return self.first, self.second


@dataclass(frozen=True)
class PreflightRecord:
    """A preflight of an attempt.

    `bad` has the evidence against each bad host, `links` the slow pairs for which no single host is blamed, `remarks`
    what else its user should know.
    """

    took_s: float
    nodes: tuple[NodeFindings, ...] = ()
    pairs: tuple[MeasuredPair, ...] = ()
    bad: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    links: tuple[MeasuredPair, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        """The bad hosts with their evidence, in words."""
        return first_of([f"{host} ({'; '.join(evidence)})" for host, evidence in self.bad.items()])

    def write(self, path: Path) -> None:
        write_json(path, {"schema": 1, **asdict(self)})

    @classmethod
    def read(cls, path: Path) -> PreflightRecord | None:
        """The record in `path`; None if there is none. Raises SiteError if it is damaged."""
        return read_record(path, cls)
