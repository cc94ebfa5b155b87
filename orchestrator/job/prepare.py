"""The files that the ranks of an attempt read, written once the hosts are known."""

from __future__ import annotations

import os
import secrets
from dataclasses import asdict

from orchestrator import process
from orchestrator.containers import runtime
from orchestrator.containers.definition import TRAINING
from orchestrator.images import run_image
from orchestrator.images.run_image import Image
from orchestrator.placement.files import hostfile, rankfile
from orchestrator.placement.mapping import Placement
from orchestrator.plans.plan import Plan
from orchestrator.runs.files import write_json, write_text
from orchestrator.runs.folder import Attempt, RunFolder
from orchestrator.spec.write import as_written

RENDEZVOUS_TIMEOUT_S = 120.0
TOKEN_BYTES = 32  # what the ranks of an attempt know, and nobody else
PROGRAMS = {"train": "training", "measure": "training.measure"}


def prepare(plan: Plan, run: RunFolder, attempt: Attempt, placement: Placement, image: Image | None) -> None:
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
            "command": process.module("python3" if image else plan.python, PROGRAMS[plan.run.program], attempt.config),
            "environment": {**_defaults(plan, image), **plan.environment},
            "hcas": plan.site.node.hcas,
            "container": _container(plan, image) if image else None,
            "kill_after_s": plan.site.kill_after_s,
        },
    )


def _defaults(plan: Plan, image: Image | None) -> dict[str, str]:
    """Variables that a run or its site may override."""
    threads = {"OMP_NUM_THREADS": str(plan.site.node.cpus_per_rank)}
    return {**threads, "PYTHONPATH": TRAINING} if image and image.bound_training else threads


def _container(plan: Plan, image: Image) -> dict[str, object]:
    """What every rank needs to start in the image; the runtime is the one that this node has."""
    container = run_image.container(plan, image, runtime.required(plan.site.container.runtime))
    return {**asdict(container), "stage": plan.site.container.stage, "sha256": image.sha256}


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
        "token": secrets.token_hex(TOKEN_BYTES),
        "done": str(attempt.done),
        "checkpoints": str(run.checkpoints),
        "metrics": str(run.metrics),
        "train": as_written(plan.run.train),
    }
