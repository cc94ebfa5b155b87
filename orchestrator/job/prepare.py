"""The files that the ranks of an attempt read, written once the hosts are known."""

from __future__ import annotations

import os

from orchestrator.placement.files import hostfile, rankfile
from orchestrator.placement.mapping import Placement
from orchestrator.planning import Plan
from orchestrator.runs.files import write_json, write_text
from orchestrator.runs.folder import Attempt, RunFolder
from orchestrator.spec.write import as_written

RENDEZVOUS_TIMEOUT_S = 120.0


def prepare(plan: Plan, run: RunFolder, attempt: Attempt, placement: Placement) -> None:
    """Write the placement in every form a launcher reads, what a rank starts, and the training's configuration."""
    attempt.logs.mkdir(exist_ok=True)
    attempt.ranks.mkdir(exist_ok=True)
    write_json(attempt.placement, placement.as_json())
    write_text(attempt.hostfile, hostfile(placement))
    write_text(attempt.rankfile, rankfile(placement, os.cpu_count() or 1))
    write_json(attempt.config, training_config(plan, run, attempt))
    write_json(
        attempt.launch,
        {
            "schema": 1,
            "command": [plan.python, "-u", "-m", "training", str(attempt.config)],
            "environment": {"OMP_NUM_THREADS": str(plan.site.node.cpus_per_rank), **plan.environment},
            "kill_after_s": plan.site.kill_after_s,
        },
    )


def training_config(plan: Plan, run: RunFolder, attempt: Attempt) -> dict[str, object]:
    """What `python -m training` reads: the one seam between the two packages."""
    return {
        "schema": 1,
        "run": plan.run_id,
        "attempt": attempt.number,
        "grid": [plan.grid.x, plan.grid.y],
        "interface": plan.site.node.interface,
        "rendezvous": str(attempt.rendezvous),
        "rendezvous_timeout_s": RENDEZVOUS_TIMEOUT_S,
        "checkpoints": str(run.checkpoints),
        "metrics": str(run.metrics),
        "train": as_written(plan.run.train),
    }
