"""A terminal, or a command, beside a rank of a running attempt."""

from __future__ import annotations

import os
from collections.abc import Sequence

from orchestrator.base import process
from orchestrator.base.errors import UserError
from orchestrator.base.json_files import damaged, read_object
from orchestrator.base.states import State
from orchestrator.network.placement.mapping import Placement
from orchestrator.runs.attempts.script import python_path
from orchestrator.runs.folder import index, ledger
from orchestrator.runs.folder.events import Started
from orchestrator.runs.folder.run_folder import Attempt, RunFolder
from orchestrator.runs.plan.plan_files import read_plan
from orchestrator.runs.shells.opening import open_shell
from orchestrator.runs.state.poll import look
from orchestrator.schedulers import client


def shell(run: RunFolder, rank: int, command: Sequence[str], *, terminal: bool) -> int:
    """Run `command`, or a shell if it is empty, beside a rank of a run; its exit code.

    In a held allocation, rank 0 is on the first host. Raises UserError if the run is not running or has no such rank,
    SiteError if its host cannot be reached.
    """
    index.own(run)
    seen = look(run)
    if seen.state is not State.RUNNING or seen.job is None:
        raise UserError(f"{run.run_id} is {seen.state.value} ({seen.reason}): a shell needs a rank that is running")
    plan, attempt = read_plan(run, seen.attempt), run.attempt(seen.attempt)
    asked = client.of(plan.site)
    host = _host(run, attempt, rank)
    inside = process.module(plan.python, "orchestrator.job.ranks.beside_rank", attempt.folder, str(rank))
    variables = {**python_path(), "TERM": os.environ.get("TERM", "dumb")}
    argv = ["env", *(f"{name}={value}" for name, value in variables.items()), *inside, *command]
    if asked.shell_from_inside:
        return open_shell(attempt.shells, host, argv, terminal=terminal)
    started = ledger.last(ledger.events(run.ledger), Started, seen.attempt)
    return asked.shell(started.job if started else seen.job, host, argv, terminal=terminal)


def _host(run: RunFolder, attempt: Attempt, rank: int) -> str:
    kept = read_object(attempt.placement)
    if kept is None:
        raise UserError(f"{run.run_id}: its ranks have not been placed yet; ask again in a moment")
    try:
        slots = Placement.from_json(kept).slots
    except (KeyError, TypeError, ValueError):
        raise damaged(attempt.placement, "it is no placement") from None
    if not 0 <= rank < len(slots):
        raise UserError(f"--rank {rank}: {run.run_id} has ranks 0 to {len(slots) - 1}")
    return slots[rank].host
