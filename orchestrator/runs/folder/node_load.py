"""The load of a node and the step times of its ranks, as its first rank's wrapper writes them every few seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.base.errors import SiteError
from orchestrator.base.json_files import damaged, read_object, write_json

LARGEST_BYTES = 65_536
LARGEST_NUMBER = 1e18
MOST_ENTRIES = 1024  # GPUs, links or ranks of a node
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
        if kept is None:
            return None
        parts = {"links": NetworkLoad, "gpus": GpuLoad, "ranks": RankSteps}
        try:
            lists: dict[str, Any] = {
                name: tuple(typed(kind, row) for row in _rows(kept, name)) for name, kind in parts.items()
            }
            return typed(cls, {name: value for name, value in kept.items() if name not in parts}, **lists)
        except ValueError as error:
            raise damaged(path, str(error)) from None


def read_or_none(path: Path) -> NodeLoad | None:
    """As NodeLoad.read; None also where the record is damaged."""
    try:
        return NodeLoad.read(path)
    except SiteError:
        return None


def typed(kind: type[Kind], row: Mapping[str, Any], **known: Any) -> Kind:
    """One of the records above, from values that anybody may have written, and those that are `known`.

    Raises ValueError, in words, unless every value is a number that can be, or a name. Other keys are left out.
    """
    values = {
        field.name: _value(field.name, str(field.type), row.get(field.name))
        for field in fields(kind)  # type: ignore[arg-type]
        if field.name not in known
    }
    return kind(**values, **known)


def _value(name: str, wanted: str, value: Any) -> Any:
    if value is None and wanted.endswith("None"):
        return None
    if wanted == "str":
        if type(value) is str and len(value) <= LONGEST_NAME:
            return value
        raise ValueError(f"{name!r} must be text of at most {LONGEST_NAME} characters")
    whole = wanted == "int"
    if type(value) not in ((int,) if whole else (int, float)) or not 0 <= value < LARGEST_NUMBER:
        raise ValueError(f"{name!r} must be a {'whole number' if whole else 'number'} from 0 to {LARGEST_NUMBER:g}")
    return value if whole else float(value)


def _rows(kept: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    rows = kept.get(name)
    if type(rows) is not list or len(rows) > MOST_ENTRIES or not all(type(row) is dict for row in rows):
        raise ValueError(f"{name!r} is no list of objects")
    return rows
