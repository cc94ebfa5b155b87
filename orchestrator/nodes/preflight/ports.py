"""Checks the InfiniBand adapters of a node: whether a port of each is up, and its rate (/sys/class/infiniband)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from torusrun.orchestrator.run.folder.node_findings import Judgement, NodeFinding

RATE = re.compile(r"(\d+(?:\.\d+)?) Gb/sec")
BITS = 8


def ports(
    hcas: Sequence[str], least_bytes_per_s: float | None, root: Path = Path("/")
) -> tuple[list[NodeFinding], dict[str, float]]:
    """The findings about these adapters ('mlx5_0', or 'mlx5_0:1' for one port), and the rates of those that are up.

    Without a limit here, the supervisor compares the rates of the nodes.
    """
    found, rates = [], {}
    for hca in hcas:
        rate, states = _best(hca, root)
        if rate is None:
            found.append(NodeFinding(f"infiniband {hca}", Judgement.BAD, states or "missing", "ACTIVE, LinkUp"))
            continue
        rates[hca] = rate
        slow = least_bytes_per_s is not None and rate < least_bytes_per_s
        wanted = "" if least_bytes_per_s is None else gigabits(least_bytes_per_s)
        found.append(
            NodeFinding(f"infiniband {hca}", Judgement.BAD if slow else Judgement.GOOD, gigabits(rate), wanted)
        )
    return found, rates


def gigabits(bytes_per_s: float) -> str:
    """'100 Gbit/s'."""
    return f"{bytes_per_s * BITS / 1e9:.4g} Gbit/s"


def _best(hca: str, root: Path) -> tuple[float | None, str]:
    """The highest rate of the adapter's ports that are up, in bytes per second (None without one), and their states."""
    adapter, _, port = hca.partition(":")
    rates, states = [], []
    for folder in sorted((root / "sys/class/infiniband" / adapter / "ports").glob(port or "*")):
        state, physical, rate = (_read(folder / name) for name in ("state", "phys_state", "rate"))
        states.append(f"port {folder.name} is {state}, {physical}")
        if "ACTIVE" in state and "LinkUp" in physical and (speed := RATE.match(rate)):
            rates.append(float(speed[1]) * 1e9 / BITS)
    return max(rates, default=None), ", ".join(states)


def _read(path: Path) -> str:
    """'ACTIVE' from '4: ACTIVE'; '' if the file cannot be read."""
    try:
        return path.read_text().strip().rpartition(": ")[2]
    except OSError:
        return ""
