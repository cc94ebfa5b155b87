"""A terminal, a command, or a forwarded port on the host of a rank of a running attempt."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.process import STANDARD, Streams
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.beside.shells.opening import open_shell
from torusrun.orchestrator.run.attempts.script import python_path
from torusrun.orchestrator.run.folder import attempt_folders, index, ledger
from torusrun.orchestrator.run.folder.events import Started
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.plan.plan_files import read_plan
from torusrun.orchestrator.run.state.poll import look
from torusrun.orchestrator.run.state.roles import rank_of
from torusrun.orchestrator.schedulers import client


def shell(run: RunFolder, rank: int, command: Sequence[str], *, terminal: bool, role: str = "") -> int:
    """Run `command`, or a shell if it is empty, on the host of a rank of a run, or of a role of it; its exit code.

    In a held allocation, rank 0 is on the first host. Raises UserError if the run is not running or has no such rank,
    SiteError if its host cannot be reached.
    """
    place = beside(run, rank, role)
    inside = process.module(
        place.plan.python, "torusrun.orchestrator.job.ranks.beside_rank", place.attempt.folder, str(place.rank)
    )
    return place.start([f"TERM={os.environ.get('TERM', 'dumb')}", *inside, *command], terminal=terminal)


@dataclass(frozen=True)
class Beside:
    """The host of a rank of a running attempt, and its job."""

    attempt: Attempt
    plan: Plan
    job: str
    host: str
    rank: int  # in the launch

    def start(self, words: Sequence[str], *, terminal: bool, streams: Streams | None = None) -> int:
        """Run variables and a command, the words of `env`, on the host; the exit code.

        It gets this process's input and output, on a terminal if `terminal`, or `streams`. Raises SiteError if the host
        cannot be reached.
        """
        asked = client.of(self.plan.site)
        argv = ["env", *(f"{name}={value}" for name, value in python_path().items()), *words]
        if asked.shell_from_inside:
            return open_shell(self.attempt.shells, self.host, argv, terminal=terminal, streams=streams or STANDARD)
        return asked.shell(self.job, self.host, argv, terminal=terminal, streams=streams)


def beside(run: RunFolder, rank: int, role: str = "") -> Beside:
    """The host of a rank of a run, or of a role of it. Raises as `shell` does."""
    index.own(run)
    seen = look(run)
    if seen.state is not State.RUNNING or seen.job is None:
        raise UserError(f"{run.run_id} is {seen.state.value} ({seen.reason}): this needs a running rank")
    attempt = run.attempt(seen.attempt)
    host, rank = _host(run, attempt, rank, role)
    started = ledger.last(ledger.events(run.ledger), Started, seen.attempt)
    return Beside(attempt, read_plan(run, seen.attempt), started.job if started else seen.job, host, rank)


def _host(run: RunFolder, attempt: Attempt, rank: int, role: str) -> tuple[str, int]:
    """(the host of a rank of a role, the rank's number in the launch)."""
    placement = attempt_folders.placement(attempt)
    if placement is None:
        raise UserError(f"{run.run_id}: its ranks have not been placed yet; try again in a moment")
    rank = rank_of(run.run_id, attempt, role, rank)
    if not 0 <= rank < len(placement.slots):
        raise UserError(f"--rank {rank}: {run.run_id} has ranks 0 to {len(placement.slots) - 1}")
    return placement.slots[rank].host, rank
