"""The verbs for Python: `run = orchestrator.submit("run.yaml"); run.wait(); run.metrics()`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.base.errors import TorusrunError, UserError
from orchestrator.base.states import State
from orchestrator.cli.dryrun.look import DryRun
from orchestrator.cli.dryrun.look import dry_run as look_ahead
from orchestrator.remote import remote_runs as known_runs
from orchestrator.remote.handle import RunThere
from orchestrator.runs.attempts.in_hold import find as find_held
from orchestrator.runs.attempts.make_hold import duration
from orchestrator.runs.attempts.make_hold import hold as make_hold
from orchestrator.runs.attempts.submit import first as submit_first
from orchestrator.runs.bad_nodes import memory
from orchestrator.runs.bad_nodes.bad_node import BlamedNode
from orchestrator.runs.folder import index
from orchestrator.runs.handle import Run
from orchestrator.runs.plan.plan import Plan, plan
from orchestrator.runs.state.awaited import to_wait_for
from orchestrator.runs.state.view import View
from orchestrator.spec.paths import absolute
from training.checkpoint.manifest import Checkpoint


def submit(
    path: str | Path,
    *,
    site: str | None = None,
    settings: Sequence[str] = (),
    after: Sequence[str] = (),
    after_any: Sequence[str] = (),
    held: str = "",
    planned: Plan | None = None,
) -> Run:
    """Submit the run file at `path`; it begins when the runs `after` are COMPLETED and the runs `after_any` are over.

    It runs in the held allocation `held`, or in its own job. `planned` is its plan, if the caller has made one. Raises
    UserError for mistakes in the request, SiteError if it is refused.
    """
    planned = planned or plan(path, site=site, settings=settings, later=bool(after or after_any or held))
    if held and (after or after_any):
        raise UserError("an attempt in a held allocation waits for those before it there: leave out --after")
    if planned.site.host:
        from orchestrator.remote.of_file import submit as submit_there

        how = {"after": after, "after_any": after_any}
        return RunThere(submit_there(planned, path, site=site, settings=settings, held=held, **how))
    if held:
        return Run(submit_first(planned, absolute(path).parent, into=find_held(held)))
    return Run(submit_first(planned, absolute(path).parent, to_wait_for(planned.site.scheduler, after, after_any)))


def hold(
    path: str | Path,
    *,
    time: str | None = None,
    idle: str = "20m",
    name: str | None = None,
    site: str | None = None,
    settings: Sequence[str] = (),
) -> Run:
    """Submit a job that holds the nodes of the run file at `path`: `submit(..., held=run.id)` starts attempts there.

    The nodes are held for `time` ('2h'; default: the file's), and released after `idle` without a running attempt.
    Raises as `submit` does.
    """
    planned = plan(path, site=site, settings=settings, later=True)
    time_s, idle_s = duration("--time", time) if time else None, duration("--idle", idle)
    if planned.site.host:
        from orchestrator.remote.of_file import hold as hold_there

        return RunThere(hold_there(planned, path, time_s, idle_s, name, site=site, settings=settings))
    return Run(make_hold(planned, absolute(path).parent, time_s, idle_s, name))


def dry_run(
    path: str | Path,
    *,
    site: str | None = None,
    settings: Sequence[str] = (),
    after: Sequence[str] = (),
    after_any: Sequence[str] = (),
) -> DryRun:
    """The job of `submit`, and the programs it would run; nothing is written. Raises as `submit` does."""
    planned = plan(path, site=site, settings=settings, later=bool(after or after_any))
    if planned.site.host:
        raise UserError(
            f"the site is reached through {planned.site.host}: use `torusrun submit {path} --dry-run`, which runs there"
        )
    return look_ahead(planned, to_wait_for(planned.site.scheduler, after, after_any))


def open_run(word: str) -> Run:
    """A run by its id, the beginning of its id, its folder, or 'last'."""
    if there := known_runs.find(word):
        return RunThere(there)
    return Run(index.find(word))


def bad_nodes() -> list[BlamedNode]:
    """The hosts of all sites that broke runs, and whether requests from this machine leave them out now (`bad`)."""
    return memory.blamed()


__all__ = [
    "BlamedNode",
    "Checkpoint",
    "DryRun",
    "Plan",
    "Run",
    "RunThere",
    "State",
    "TorusrunError",
    "View",
    "bad_nodes",
    "dry_run",
    "hold",
    "open_run",
    "plan",
    "submit",
]
