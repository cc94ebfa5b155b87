"""The places of a campaign: this machine, the labs, and a PBS if there is one."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.e2e.lab_places import GridEngine, Slurm
from tests.e2e.pbs_place import PBS
from tests.e2e.places import Local, Place
from tests.lab.cluster import Cluster, packages
from tests.lab.gridengine import GridEngineLab
from tests.lab.slurm import SlurmLab

WHY_NOT: dict[str, Callable[[], str | None]] = {
    "local": lambda: None,
    "slurm": packages.why_not_here,
    "gridengine": packages.why_not_here,
    "pbs": PBS.why_no_harm,
}


def places(asked: Sequence[str] | None, stack: ExitStack) -> dict[str, Place]:
    """The requested places, or all possible ones; the labs run until the stack closes."""
    if asked and (reasons := [reason for name in asked if (reason := WHY_NOT[name]())]):
        sys.exit(f"error: {reasons[0]}")
    names = asked or [name for name, why_not in WHY_NOT.items() if not why_not()]
    found: dict[str, Place] = {}
    cluster = stack.enter_context(Cluster()) if {"slurm", "gridengine"} & set(names) else None
    for name in names:
        if name == "local":
            found[name] = stack.enter_context(_local())
        elif name == "pbs":
            found[name] = PBS()
        elif cluster:
            lab = {"slurm": SlurmLab, "gridengine": GridEngineLab}[name](cluster)
            lab.start()
            found[name] = {"slurm": Slurm, "gridengine": GridEngine}[name](lab)
    return found


@contextmanager
def _local() -> Iterator[Local]:
    with tempfile.TemporaryDirectory(prefix="torusrun-campaign-", ignore_cleanup_errors=True) as folder:
        yield Local(Path(folder))
