"""The load of a node and the step times of its ranks, as its first rank's wrapper writes them every few seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.base.errors import SiteError
from orchestrator.base.json_files import damaged, read_object, write_json
from orchestrator.base.typed import record_of

LARGEST_BYTES = 65_536
LONGEST_NAME = 64

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class NetworkLoad:
    """What a network interface, or a port of an InfiniBand adapter, carried."""

    name: str
    in_bytes_per_s: float
    out_bytes_per_s: float


@dataclass(frozen=True)
class GpuLoad:
    """A GPU; `busy` is the share of the time in which a kernel ran on it. None where its driver does not say."""

    number: int
    busy: float | None = None
    memory_bytes: float | None = None
    memory_total_bytes: float | None = None
    power_w: float | None = None


@dataclass(frozen=True)
class RankSteps:
    """The steps of a rank that came to `step` at `told_s`, since it told of others before.

    `step_s` and `largest_s` are the mean and the longest time of one. `waited` is the share of that time in which the
    rank waited for others; None where that is known only by waiting for a GPU.
    """

    rank: int
    told_s: float
    step: int
    step_s: float
    largest_s: float
    waited: float | None = None

    @property
    def computed_s(self) -> float | None:
        """The time of a step in which the rank did not wait for others."""
        return None if self.waited is None else self.step_s * max(1 - self.waited, 0.0)


@dataclass(frozen=True)
class NodeLoad:
    """A node at `at_s` by its own clock, as means since the record before, which is `every_s` older.

    `busy` is the share of the time in which the `cores` of the job worked. Memory is that of the job where it has a
    limit, else that of the node, without files that are only cached. `load` is the node's load average of a minute.
    """

    at_s: float
    every_s: float
    cores: int
    busy: float | None = None
    load: float | None = None
    memory_bytes: float | None = None
    memory_total_bytes: float | None = None
    links: tuple[NetworkLoad, ...] = ()
    gpus: tuple[GpuLoad, ...] = ()
    ranks: tuple[RankSteps, ...] = ()

    def write(self, path: Path) -> None:
        """Raises SiteError when that fails."""
        write_json(path, {"schema": 1, **asdict(self)})

    @classmethod
    def read(cls, path: Path) -> NodeLoad | None:
        """The record in `path`, None where there is none. Raises SiteError where it is damaged."""
        kept = read_object(path, LARGEST_BYTES)
        try:
            return None if kept is None else typed(cls, kept)
        except ValueError as error:
            raise damaged(path, str(error)) from None


def read_or_none(path: Path) -> NodeLoad | None:
    """As NodeLoad.read; None also where the record is damaged."""
    try:
        return NodeLoad.read(path)
    except SiteError:
        return None


def typed(kind: type[Kind], row: Mapping[str, Any]) -> Kind:
    """One of the records above, from values that anybody may have written. Raises ValueError, in words."""
    found: Kind = record_of(kind, row, _name, least=0)
    return found


def _name(text: str) -> str:
    if len(text) > LONGEST_NAME:
        raise ValueError(f"a name has more than {LONGEST_NAME} characters")
    return text
