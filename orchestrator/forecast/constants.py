"""The shipped constants and networks: every value with its source and how reliable it is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.place.cost.regular import Level, Network
from torusrun.training.recipe.files import CERTAINTIES, Certainty

DATA = Path(__file__).parent / "data"
CAPABILITY = "compute_capability"
LEVEL = ("members", "bandwidth_bytes_per_s", "latency_s")


@dataclass(frozen=True)
class Value:
    """A published number, or a number derived from it."""

    value: float
    mark: Certainty
    source: str


@lru_cache
def table(name: str) -> dict[Any, Any]:
    """The shipped YAML file `name`."""
    import yaml

    loaded: dict[Any, Any] = yaml.safe_load((DATA / f"{name}.yaml").read_text(encoding="utf-8"))
    return loaded


def value(written: Any) -> Value:
    """[value, mark, source] as a Value. Raises ValueError for other input."""
    if not isinstance(written, list) or len(written) != 3 or written[1] not in CERTAINTIES or not written[2]:
        raise ValueError(f"{written!r} is not [value, {'|'.join(CERTAINTIES)}, source]")
    return Value(float(written[0]), written[1], str(written[2]))


def number(written: Any) -> float:
    return value(written).value


def entry(name: str, key: str, option: str) -> Any:
    """An entry of a table. Raises UserError with the known names and the option that chooses an entry."""
    entries = table(name)
    if key not in entries:
        raise UserError(f"{option} {key}: there is no such name; there are: {', '.join(map(str, entries))}")
    return entries[key]


def network(name: str) -> Network:
    """The shipped network `name`. Raises UserError if there is none."""
    written = entry("networks", name, "--network")
    levels: list[Level] = []
    ranks = 1
    for level in (key for key in written if key != CAPABILITY):
        members, bandwidth, latency = (number(written[level][key]) for key in LEVEL)
        levels.append(Level(level, int(members), bandwidth, latency, sharing=ranks))
        ranks *= int(members)
    capability = {CAPABILITY: int(number(written[CAPABILITY]))} if CAPABILITY in written else {}
    return Network(tuple(levels), **capability)


def with_ranks_per_node(links: Network, ranks: int) -> Network:
    """The same links with `ranks` on a node; a network of one level has no nodes and is unchanged."""
    if len(links.levels) == 1 or links.levels[0].members == ranks:
        return links
    inner, *outer = links.levels
    scaled = [replace(level, sharing=max(1, level.sharing * ranks // inner.members)) for level in outer]
    return replace(links, levels=(replace(inner, members=ranks), *scaled))
