"""The programs of torusrun itself: the training, and the measurement of ranks and links."""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict
from pathlib import Path

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.json_files import write_json
from torusrun.orchestrator.base.shipped import ROOT
from torusrun.orchestrator.keys.write import as_written
from torusrun.orchestrator.run.folder import allocation
from torusrun.orchestrator.run.folder.records import Meaning
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.plan.all_reduces import spans_of
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.program.what_runs import Program
from torusrun.training.checkpoint import node_memory
from torusrun.training.config import SCHEMA as CONFIG_SCHEMA
from torusrun.training.reporting import exits

RENDEZVOUS_TIMEOUT_S = 120.0
ENDING_S = 600.0  # how much longer than its time limit a job may take, at most, to be gone
TOKEN_BYTES = 32  # of the secret that only the ranks of an attempt know
MODULES = {"train": "torusrun.training", "measure": "torusrun.training.measure"}
EXIT_CODES = {
    exits.EXIT_DONE: Meaning.DONE,
    exits.EXIT_CUT_OFF: Meaning.CUT_OFF,
    exits.EXIT_NO_CHECKPOINT: Meaning.UNSAVED,
    exits.EXIT_STOPPED: Meaning.LATER,
}


def make_ready(plan: Plan, run: RunFolder, attempt: Attempt) -> None:
    """Write the configuration that the program reads."""
    write_json(attempt.config, configuration(plan, run, attempt), secret=True)  # it contains the token


def program(plan: Plan, attempt: Attempt, python: str, root: str | Path = ROOT) -> Program:
    """The training or the measurement of an attempt; `root` is the folder of our `training` where it runs."""
    return Program(
        tuple(process.module(python, MODULES[plan.run.program], attempt.config, root=root)),
        exit_codes={str(code): meaning for code, meaning in EXIT_CODES.items()},
        records_done=True,
        shows_stack=True,
        rendezvous=False,
        own_group=False,
    )


def configuration(plan: Plan, run: RunFolder, attempt: Attempt) -> dict[str, object]:
    """The configuration of `python -m torusrun.training`."""
    return {
        "schema": CONFIG_SCHEMA,
        "run": plan.run_id,
        "attempt": attempt.number,
        "grid": list(plan.grid.dims),
        "by_size": [asdict(span) for span in spans_of(plan)],
        "interface": plan.site.node.interface,
        "rendezvous": str(attempt.rendezvous),
        "rendezvous_timeout_s": RENDEZVOUS_TIMEOUT_S,
        "token": secrets.token_hex(TOKEN_BYTES),
        "done": str(attempt.done),
        "mean_time_to_failure_s": plan.mean_time_to_failure_s,
        "checkpoints": str(run.checkpoints),
        "memory": str(node_memory.of_run(plan.run_id, run.checkpoints)),
        "memory_until_s": _job_until_s(plan) + plan.site.kill_after_s + ENDING_S,
        "metrics": str(run.metrics),
        "trace": str(attempt.trace),
        "train": as_written(plan.run.train),
    }


def _job_until_s(plan: Plan) -> float:
    """When the job of an attempt that begins now is over: a held allocation may last longer than the attempt."""
    return max(time.time() + plan.run.time_s, allocation.until_s() or 0.0)
