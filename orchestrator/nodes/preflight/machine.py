"""Checks a node's memory, disk, network interface, container runtime and image."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from torusrun.orchestrator.nodes.preflight.order import WantedNode
from torusrun.orchestrator.run.folder.node_findings import Judgement, NodeFinding
from torusrun.training.files.job_memory import memory
from torusrun.training.meeting.addresses import RendezvousError, address_of_host

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
    there = os.access(path, right)
    return NodeFinding(check, Judgement.GOOD if there else Judgement.BAD, path if there else f"{path} cannot be used")
