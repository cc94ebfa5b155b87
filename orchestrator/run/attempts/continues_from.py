"""The checkpoint from which the next attempt of a run continues."""

from __future__ import annotations

from pathlib import Path

from torusrun.orchestrator.base.terminal.remarks import busy
from torusrun.orchestrator.run.folder.checkpoints import newest
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.program import command
from torusrun.training.checkpoint.manifest import newest_complete


def checkpoint(run: RunFolder, plan: Plan) -> tuple[Path | None, float]:
    """The newest checkpoint, and its epoch if it is torusrun's training (else 0.0)."""
    if plan.run.command:
        return newest(command.checkpoints(plan, run)), 0.0
    with busy(f"reading the newest checkpoint of {run.run_id}, whose checksums are compared"):
        found = newest_complete(run.checkpoints)
    return (found.path, found.epoch) if found else (None, 0.0)
