"""Makes a held allocation: a run whose job starts the attempts of other runs one after the other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.keys.kinds import DURATION, NAME
from torusrun.orchestrator.keys.run import NO_CODE, Checkpoints, ExitCodes, KeepGoing, MetricsSettings, StopSettings
from torusrun.orchestrator.run.attempts import submit
from torusrun.orchestrator.run.attempts.create import Origin
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.attempt_plan import option
from torusrun.orchestrator.run.plan.plan import Plan, new_id
from torusrun.training.recipe.train import Train

LONGEST_NAME = 63
LOADS_TORCH = "import torch"


def hold(
    plan: Plan,
    source: Path,
    time_s: float | None,
    idle_s: float,
    name: str | None,
    *,
    run_id: str = "",
    origin: Origin | None = None,
) -> RunFolder:
    """Submit a held allocation for runs like that of `plan`, whose spec is in `source`; it lasts `time_s`.

    It is given back after `idle_s` without an attempt. A request from another machine has a `run_id` and an `origin`.
    Raises the errors of `submit.first`.
    """
    return submit.first(held_plan(plan, time_s, name, run_id), source, idle_s=idle_s, origin=origin)


def held_plan(plan: Plan, time_s: float | None, name: str | None, run_id: str = "") -> Plan:
    """The plan of a run with the same request as the run of `plan`. Its ranks only show that they start.

    For trainings they load PyTorch, so that every node has it in memory. `run_id` is an id chosen elsewhere, if any.
    """
    name = option("--name", NAME, name) if name else f"held-{plan.run.name}"[:LONGEST_NAME]
    python = "python3" if plan.run.image else plan.python
    run = replace(
        plan.run,
        name=name,
        time_s=plan.run.time_s if time_s is None else time_s,
        hang_timeout_s=None,
        program="train",
        train=Train(),
        command=("true",) if plan.run.command else tuple(process.bare_program(python, LOADS_TORCH)),
        code=NO_CODE,
        stop=StopSettings(),
        keep_going=KeepGoing(),
        checkpoints=Checkpoints(),
        exit_codes=ExitCodes(),
        metrics=MetricsSettings(),
    )
    if run.time_s <= plan.site.stop_before_s:
        raise UserError(f"--time must be longer than the site's stop_before ({plan.site.stop_before_s:g}s)")
    run_id = run_id or new_id(name)
    folder = plan.folder.with_name(run_id)
    return replace(plan, run_id=run_id, run=run, folder=folder, chosen=None, stretch=None, recipe_changes=())


def duration(name: str, text: str) -> float:
    """The seconds of an option's value. Raises UserError if it is not a duration."""
    return float(option(name, DURATION, text))
