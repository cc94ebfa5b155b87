"""The cost of a sweep: the cost expected at its submission, and the cost so far."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any

from torusrun.orchestrator.base.shown.numbers import duration
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.sweep_folder import SweepFolder
from torusrun.orchestrator.sweeps.spent import spent


def lines(sweep: SweepFolder, members: Sequence[RunFolder], over: Collection[str]) -> list[str]:
    """One line, after an empty one; [] before the first member begins. `over` are the ids of members that are over."""
    record, used = sweep.read(), spent(members, over)
    if not used:
        return []
    so_far = f"{used.node_hours:.3g} node-hours in {duration(used.wall_s)}"
    if not record or not record.cost:
        return ["", f"cost so far: {so_far}"]
    most, kept = "at most " if record.cost.by_limits else "", record.cost
    left_out = "the queue" if kept.by_limits or kept.start_s is not None else "the queue, starts and stops"
    expected = f"{most}{kept.node_hours:.3g} in {most}{duration(kept.wall_s)} without {left_out}"
    return ["", f"cost so far: {so_far}; at submit {expected}"]


def as_json(sweep: SweepFolder, members: Sequence[RunFolder], over: Collection[str]) -> dict[str, Any]:
    """Both costs; each is null if it is not known."""
    record, used = sweep.read(), spent(members, over)
    kept = record.cost if record else None
    return {"at_submit": asdict(kept) if kept else None, "so_far": asdict(used) if used else None}
