"""Control groups (v1): whether Slurm can use them here, and the removal of dead nodes' groups."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

BASE = Path("/sys/fs/cgroup")
CONTROLLERS = ["freezer", "memory", "cpuset", "cpuacct"]


def usable() -> bool:
    """Whether groups can be made: containers often forbid it. Slurm's cgroup plug-ins give real OUT_OF_MEMORY ends."""
    return all(_can_make_in(BASE / controller) for controller in CONTROLLERS)


def _can_make_in(folder: Path) -> bool:
    if not (folder / "cgroup.procs").exists():
        return False
    probe = folder / "trlab_probe"
    try:
        probe.mkdir(exist_ok=True)
        probe.rmdir()
    except OSError:
        return False
    return True


def remove(nodes: Sequence[str]) -> None:
    """Remove the groups of nodes. Slurm names them slurm_<node>; they outlive a node that lost its power."""
    for top in (BASE / controller / f"slurm_{node}" for controller in CONTROLLERS for node in nodes):
        for folder in sorted([top, *top.rglob("*/")], reverse=True):
            if folder.is_dir():
                _remove_when_empty(folder)


def _remove_when_empty(folder: Path, tries: int = 20) -> None:
    for _ in range(tries):  # killed processes leave their group after a moment
        try:
            return folder.rmdir()
        except OSError:
            time.sleep(0.05)
