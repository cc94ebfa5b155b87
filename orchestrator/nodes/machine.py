"""Checks a node's memory, disk, network interface, InfiniBand adapters, container runtime and image."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from torusrun.orchestrator.nodes.judge import ADAPTER, gigabits
from torusrun.orchestrator.nodes.messages import WantedNode
from torusrun.orchestrator.run.folder.node_findings import Judgement, NodeFinding
from torusrun.training.files.job_memory import memory
from torusrun.training.meeting.addresses import RendezvousError, address_of_host

RATE = re.compile(r"(\d+(?:\.\d+)?) Gb/sec")
MIB = 1024**2


def machine(wanted: WantedNode) -> Iterator[NodeFinding]:
    yield free_memory(wanted)
    yield free_disk(wanted)
    yield interface(wanted)
    if wanted.runtime:
        yield _present("runtime", wanted.runtime, os.X_OK)
    if wanted.image:
        yield _present("image", wanted.image, os.R_OK)


def free_memory(wanted: WantedNode, root: Path = Path("/")) -> NodeFinding:
    used_bytes, all_bytes = memory(root)
    return _enough("memory", all_bytes - used_bytes, wanted.free_memory_bytes)


def free_disk(wanted: WantedNode) -> NodeFinding:
    """The free space of the node's own folder for files, which is made later."""
    named = os.path.expandvars(wanted.scratch)
    folder = Path(tempfile.gettempdir() if "$" in named else os.path.expanduser(named))
    while not folder.exists():
        folder = folder.parent
    return _enough(f"disk {folder}", shutil.disk_usage(folder).free, wanted.free_disk_bytes)


def interface(wanted: WantedNode) -> NodeFinding:
    try:
        address = address_of_host(wanted.interface)[1]
    except RendezvousError as error:
        return NodeFinding("interface", Judgement.BAD, str(error))
    return NodeFinding("interface", Judgement.GOOD, address)


def _enough(check: str, free_bytes: float, wanted_bytes: float | None) -> NodeFinding:
    value = f"{free_bytes / MIB:,.0f} MiB free"
    if wanted_bytes is None:
        return NodeFinding(check, Judgement.SKIPPED, value)
    result = Judgement.BAD if free_bytes < wanted_bytes else Judgement.GOOD
    return NodeFinding(check, result, value, f"{wanted_bytes / MIB:,.0f} MiB")


def _present(check: str, path: str, right: int) -> NodeFinding:
    if os.access(path, right):
        return NodeFinding(check, Judgement.GOOD, path)
    return NodeFinding(check, Judgement.BAD, f"{path} cannot be used")


def ports(hcas: Sequence[str], root: Path = Path("/")) -> tuple[list[NodeFinding], dict[str, float]]:
    """Whether a port of each of these adapters is up, and the rates of those that are, in bytes per second.

    An adapter is 'mlx5_0', or 'mlx5_0:1' for one port. The supervisor compares the rates of the nodes.
    """
    findings, rates = [], {}
    for hca in hcas:
        check = f"{ADAPTER} {hca}"
        rate, states = _best(hca, root)
        if rate is None:
            findings.append(NodeFinding(check, Judgement.BAD, states or "missing", "ACTIVE, LinkUp"))
        else:
            rates[check] = rate
            findings.append(NodeFinding(check, Judgement.GOOD, gigabits(rate)))
    return findings, rates


def _best(hca: str, root: Path) -> tuple[float | None, str]:
    """The highest rate of the adapter's ports that are up, in bytes per second (None without one), and their states."""
    adapter, _, port = hca.partition(":")
    rates, states = [], []
    for folder in sorted((root / "sys/class/infiniband" / adapter / "ports").glob(port or "*")):
        state, physical, rate = (_read(folder / name) for name in ("state", "phys_state", "rate"))
        states.append(f"port {folder.name} is {state}, {physical}")
        if "ACTIVE" in state and "LinkUp" in physical and (speed := RATE.match(rate)):
            rates.append(float(speed[1]) * 1e9 / 8)
    return max(rates, default=None), ", ".join(states)


def _read(path: Path) -> str:
    """'ACTIVE' from '4: ACTIVE'; '' if the file cannot be read."""
    try:
        return path.read_text().strip().rpartition(": ")[2]
    except OSError:
        return ""
