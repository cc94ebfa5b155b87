"""The shipped networks, and those of files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.forecast import constants
from torusrun.orchestrator.place.cost.regular import Level, Network

MOST = 10_000_000
KEYS = ("members", "bandwidth_bytes_per_s", "latency_s")
CAPABILITY = "compute_capability"
LEAST_CAPABILITY = 10  # 7 and 7.0 are NVIDIA's own way to write 70


def network(name: str) -> Network:
    """The shipped network `name`, or that of the file at the path `name`. Raises UserError if there is none."""
    if name.endswith((".yaml", ".yml")):
        return _read(Path(name))
    return _network(constants.entry("networks", name, "--network"), name)


def _read(path: Path) -> Network:
    import yaml

    try:
        written = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(written, dict) or not isinstance(written.get("network"), dict):
        raise UserError(f"{path}: has no 'network:' (docs/guides/predict.md)")
    return _network(written["network"], str(path))


def _network(written: Mapping[str, Any], where: str) -> Network:
    if not {*written} - {CAPABILITY}:
        raise UserError(f"{where}: the network has no levels")
    levels: list[Level] = []
    ranks = 1
    for name, values in written.items():
        if name == CAPABILITY:
            continue
        levels.append(_level(str(name), values, ranks, where))
        ranks *= levels[-1].members
    found = Network(tuple(levels))
    if CAPABILITY not in written:
        return found
    try:
        capability = _plain(written[CAPABILITY])
        if capability != int(capability) or capability < LEAST_CAPABILITY:
            raise ValueError
        return replace(found, compute_capability=int(capability))
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{where}: {CAPABILITY} must be a whole number, as in 70 for sm_70") from None


def _level(name: str, values: Any, ranks_below: int, where: str) -> Level:
    try:
        members, bandwidth, latency = (_plain(values[key]) for key in KEYS)
        sharing = int(values.get("sharing", ranks_below))
        if members != int(members) or not 1 <= members <= MOST or not isfinite(bandwidth + latency):
            raise ValueError
        if bandwidth <= 0 or latency < 0 or sharing < 1:
            raise ValueError
        return Level(name, int(members), bandwidth, latency, sharing)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise UserError(
            f"{where}: level {name!r} must have members (1 or more), bandwidth_bytes_per_s (above 0) and latency_s"
        ) from None


def _plain(written: Any) -> float:
    return constants.number(written) if isinstance(written, list) else float(written)


def with_ranks_per_node(links: Network, ranks: int) -> Network:
    """The same links with `ranks` on a node; a network of one level has no nodes and is unchanged."""
    if len(links.levels) == 1 or links.levels[0].members == ranks:
        return links
    inner, *outer = links.levels
    scaled = [replace(level, sharing=max(1, level.sharing * ranks // inner.members)) for level in outer]
    return replace(links, levels=(replace(inner, members=ranks), *scaled))
