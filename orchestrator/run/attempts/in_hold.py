"""Attempts in a held allocation: check that they fit, and request their start and end from its keeper."""

from __future__ import annotations

from dataclasses import dataclass, fields

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.keys.measured import BY_NAME
from torusrun.orchestrator.run.folder import allocation, index, ledger
from torusrun.orchestrator.run.folder.allocation import AskedOf
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.plan.plan_files import read_plan
from torusrun.training.counted import counted

FREE_TO_DIFFER = (  # keys of a site that change nothing about an attempt in a job that has begun
    "runs",
    "queue",
    "account",
    "poll_interval_s",
    "command_timeout_s",
    "env",
    "notify",
    "scheduler_args",
    "umask",
    "bad_nodes",
    "attempts",
    "attempts_by",
    "preflight",
    "links_error",
    "points_per_node_hour",
    *BY_NAME,
)


@dataclass(frozen=True)
class Allocation:
    """A held allocation that takes attempts: its run, its job, and its plan."""

    run: RunFolder
    job: str
    plan: Plan


def find(word: str) -> Allocation:
    """The held allocation that `word` names, as for runs, without those that are over; 'last' is the newest.

    Raises UserError if there is none, or if it is over.
    """
    run = _open(word) or index.find(word)
    if not allocation.is_held(run):
        raise UserError(f"{run.run_id} is not a held allocation: `torusrun hold RUN.yaml` makes one")
    index.own(run)
    job = allocation.job(run) if allocation.takes_attempts(run) else None  # then no query of the scheduler is needed
    if job is None:
        from torusrun.orchestrator.run.state.poll import look  # imported late: few runs are submitted into another

        seen = look(run)
        job = None if seen.state.over or seen.state is State.UNKNOWN else seen.job
        if job is None:
            raise UserError(f"{run.run_id} is {seen.state.value} ({seen.reason}): no attempt can be started in it")
    return Allocation(run, job, read_plan(run, allocation.ATTEMPT))


def _open(word: str) -> RunFolder | None:
    """The allocation that is not over and whose id begins with `word`, or the newest; None if none or several match."""
    named = [run for run in index.runs() if word == "last" or run.run_id.startswith(word)]
    found = (
        run for run in reversed(named) if allocation.is_held(run) and not run.attempt(allocation.ATTEMPT).end.exists()
    )
    newest = next(found, None)
    if word == "last" and newest is None:
        raise UserError("there is no held allocation; `torusrun hold RUN.yaml` makes one")
    return newest if word == "last" or next(found, None) is None else None


def check(plan: Plan, into: Allocation) -> None:
    """Raise UserError with all needs of the run of `plan` that the allocation does not meet."""
    if wrong := misfits(plan, into.plan):
        raise UserError("\n".join(f"{into.run.run_id}: {what}" for what in wrong))


def misfits(plan: Plan, held: Plan) -> list[str]:
    """The needs of the run of `plan` that an allocation with the plan `held` does not meet, in words."""
    differing = [f.name for f in fields(plan.site) if getattr(plan.site, f.name) != getattr(held.site, f.name)]
    if others := [name.removesuffix("_s") for name in differing if name not in FREE_TO_DIFFER]:
        return [f"its site differs from the run's site in {', '.join(others)}"]
    wrong = []
    if plan.run.nodes > held.run.nodes:
        wrong.append(f"the run takes {counted(plan.run.nodes, 'node')}, and it has {held.run.nodes}")
    if plan.ranks_per_node > held.ranks_per_node:
        wrong.append(
            f"the run takes {counted(plan.ranks_per_node, 'rank')} per node, and it asked for {held.ranks_per_node}"
        )
    if plan.run.queue and plan.run.queue != (held.run.queue or held.site.queue):
        wrong.append(f"the run needs the queue {plan.run.queue!r}")
    return wrong


def end(run: RunFolder, number: int) -> bool:
    """Have the keeper end an attempt that does not end by itself; False if it is in no held allocation."""
    held = allocation.held_in(ledger.events(run.ledger), number)
    if not held:
        return False
    try:
        allocation.ask(allocation.of(held), AskedOf(run.attempt(number), kill=True))
    except allocation.Closed:
        pass  # its end ended the attempt
    except SiteError as error:
        raise SiteError(f"attempt {number} of {run.run_id} cannot be ended: {error}") from None
    return True
