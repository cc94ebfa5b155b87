"""Makes a held allocation: a run whose job starts the attempts of other runs one after the other."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.base import process
from orchestrator.base.errors import UserError
from orchestrator.runs.attempts import submit
from orchestrator.runs.folder.run_folder import RunFolder
from orchestrator.runs.plan.plan import Plan
from orchestrator.spec.kinds import DURATION, NAME, Kind
from orchestrator.spec.program import Checkpoints, ExitCodes, MetricsSettings, StopSettings
from orchestrator.spec.run import NO_CODE
from training.recipe.train import Train

LONGEST_NAME = 63
LOADS_TORCH = "import torch"


def hold(plan: Plan, source: Path, time_s: float | None, idle_s: float, name: str | None) -> RunFolder:
    """Submit a held allocation for runs like that of `plan`, whose spec is in `source`; it lasts `time_s`.

    It is given back after `idle_s` without an attempt. Raises the errors of `submit.first`.
    """
    return submit.first(held_plan(plan, time_s, name), source, idle_s=idle_s)


def held_plan(plan: Plan, time_s: float | None, name: str | None, run_id: str = "") -> Plan:
    """The plan of a run with the same request as the run of `plan`. Its ranks only show that they start.

    For trainings they load PyTorch, so that every node has it in memory. `run_id` is an id chosen elsewhere, if any.
    """
    name = _parsed("--name", NAME, name) if name else f"held-{plan.run.name}"[:LONGEST_NAME]
    python = "python3" if plan.run.image else plan.python
    run = replace(
        plan.run,
        name=name,
        time_s=plan.run.time_s if time_s is None else time_s,
        hang_timeout_s=None,
        program="train",
        train=Train(),
        command=("true",) if plan.run.command else tuple(process.program(python, LOADS_TORCH)),
        code=NO_CODE,
        stop=StopSettings(),
        checkpoints=Checkpoints(),
        exit_codes=ExitCodes(),
        metrics=MetricsSettings(),
    )
    if run.time_s <= plan.site.stop_before_s:
        raise UserError(f"--time must be longer than the site's stop_before ({plan.site.stop_before_s:g}s)")
    run_id = run_id or f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    folder = plan.folder.with_name(run_id)
    return replace(plan, run_id=run_id, run=run, folder=folder, chosen=None, stretch=None, recipe_changes=())


def duration(option: str, text: str) -> float:
    """The seconds of an option's value. Raises UserError if it is not a duration."""
    return float(_parsed(option, DURATION, text))


def _parsed(option: str, kind: Kind, text: str) -> Any:
    try:
        return kind.parse(text)
    except ValueError as error:
        raise UserError(f"{option}: {text!r} {error}") from None
