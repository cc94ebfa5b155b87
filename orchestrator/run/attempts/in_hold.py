"""Held allocations: their plan, and their attempts, which must fit; their keeper starts and ends them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.keys.kinds import DURATION, NAME
from torusrun.orchestrator.keys.roles import MetricsSettings, StopSettings
from torusrun.orchestrator.keys.run import NO_CODE, Checkpoints, ExitCodes, KeepGoing
from torusrun.orchestrator.run.folder import allocation, index, ledger
from torusrun.orchestrator.run.folder.allocation import AskedOf
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.attempt_plan import option
from torusrun.orchestrator.run.plan.plan import Plan, new_id
from torusrun.orchestrator.run.plan.plan_files import read_plan
from torusrun.training.counted import counted
from torusrun.training.recipe.train import Train

# Keys of a site that change nothing about an attempt in a job that has begun.
FREE_TO_DIFFER = (
    "runs", "queue", "account", "poll_interval_s", "command_timeout_s", "env", "notify", "request", "umask",
    "forget_bad_nodes_s", "attempts_by", "preflight", "measured", "points_per_node_hour",
)  # fmt: skip
LONGEST_NAME = 63
LOADS_TORCH = "import torch"


@dataclass(frozen=True)
class Allocation:
    """A held allocation that takes attempts: its run, its job, and its plan."""

    run: RunFolder
    job: str
    plan: Plan


def find(word: str) -> Allocation:
    """The held allocation that `word` names, as for runs, without those that are over; 'last' is the newest.

    Raises UserError if no allocation matches, or if it is over.
    """
    run = _open(word) or index.find(word)
    if not allocation.is_held(run):
        raise UserError(f"{run.run_id} is not a held allocation: `torusrun hold RUN.yaml` makes one")
    index.own(run)
    job = allocation.job(run) if allocation.takes_attempts(run) else None  # then the scheduler need not be asked
    if job is None:
        from torusrun.orchestrator.run.state.poll import look  # a submission to the scheduler needs no states of runs

        seen = look(run)
        job = None if seen.state.over or seen.state is State.UNKNOWN else seen.job
        if job is None:
            raise UserError(f"{run.run_id} is {seen.state.value} ({seen.reason}): no attempt can be started in it")
    return Allocation(run, job, read_plan(run, allocation.ATTEMPT))


def _open(word: str) -> RunFolder | None:
    """The allocation that is not over and whose id begins with `word`, or the newest; None if none or several match."""
    named = [run for run in index.runs() if word == "last" or run.run_id.startswith(word)]
    are_open = (
        run for run in reversed(named) if allocation.is_held(run) and not run.attempt(allocation.ATTEMPT).end.exists()
    )
    newest = next(are_open, None)
    if word == "last" and newest is None:
        raise UserError("there is no held allocation; `torusrun hold RUN.yaml` makes one")
    return newest if word == "last" or next(are_open, None) is None else None


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
    if plan.all_nodes > held.run.nodes:
        wrong.append(f"the run takes {counted(plan.all_nodes, 'node')}, and it has {held.run.nodes}")
    if (ranks := plan.most_ranks_on_a_node) > held.ranks_per_node:
        wrong.append(f"the run takes {counted(ranks, 'rank')} per node, and it asked for {held.ranks_per_node}")
    mine, theirs = plan.site.request, held.site.request
    others = [key for field, key in plan.run.request.named() if getattr(mine, field) != getattr(theirs, field)]
    if "gpus" not in others and plan.site.gpus != held.site.gpus:
        others.append("gpus")
    wrong += [f"the run asks for another request.{key} than it did" for key in others]
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
    return replace(plan, run_id=run_id, run=run, folder=folder, chosen=None, recipe_changes=())


def duration(name: str, text: str) -> float:
    """The seconds of an option's value. Raises UserError if it is not a duration."""
    return float(option(name, DURATION, text))
