"""The verbs for Python: `run = torusrun.submit("run.yaml"); run.wait(); run.metrics()`.

What only sweeps and login nodes need is imported late: a plain run uses none of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torusrun.orchestrator.base.errors import TorusrunError, UserError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.cli.dry_run import DryRun
from torusrun.orchestrator.cli.dry_run import dry_run as look_ahead
from torusrun.orchestrator.cli.handle import Run, Sweep
from torusrun.orchestrator.keys.load import RunSource, folder_of, is_sweep
from torusrun.orchestrator.keys.paths import absolute
from torusrun.orchestrator.run.attempts.create import Origin
from torusrun.orchestrator.run.attempts.in_hold import duration, held_plan
from torusrun.orchestrator.run.attempts.in_hold import find as find_held
from torusrun.orchestrator.run.attempts.submit import first as submit_first
from torusrun.orchestrator.run.folder import index
from torusrun.orchestrator.run.folder.sweep_folder import find as find_sweep
from torusrun.orchestrator.run.plan.plan import Plan, plan
from torusrun.orchestrator.run.state.awaited import to_wait_for
from torusrun.orchestrator.run.state.view import View
from torusrun.training.checkpoint.manifest import Checkpoint

if TYPE_CHECKING:
    from torusrun.orchestrator.cli.handles_there import RunThere as RunThere
    from torusrun.orchestrator.cli.handles_there import SweepThere as SweepThere
    from torusrun.orchestrator.sweeps.plans import PlannedSweep as PlannedSweep


def submit(
    path: RunSource,
    *,
    site: str | None = None,
    settings: Sequence[str] = (),
    after: Sequence[str] = (),
    after_any: Sequence[str] = (),
    held: str = "",
    planned: Plan | None = None,
    origin: Origin | None = None,
) -> Run:
    """Submit the run file at `path`; it begins when the runs `after` are COMPLETED and the runs `after_any` are over.

    It runs in the held allocation `held`, or in its own job. `planned` is its plan, if the caller has made it, and
    `origin` the origin of its files, if from another machine. Raises UserError for mistakes in the request, SiteError
    if it is refused.
    """
    planned = planned or _plan_of_one(path, site, settings, later=bool(after or after_any or held))
    if held and (after or after_any):
        raise UserError("attempts in a held allocation run one after the other: leave out --after")
    if planned.site.host:
        from torusrun.orchestrator.cli.handles_there import RunThere
        from torusrun.orchestrator.remote import remote_runs
        from torusrun.orchestrator.remote.host import of
        from torusrun.orchestrator.remote.of_file import submit as send

        host = of(planned.site)
        options = remote_runs.awaited_on(host, after, after_any)
        options += [f"--in={held}"] if held else []
        return RunThere(send("submit", planned, path, options, site=site, settings=settings))
    folder = absolute(folder_of(path))
    if held:
        return Run(submit_first(planned, folder, origin=origin, into=find_held(held)))
    return Run(submit_first(planned, folder, to_wait_for(planned.site.scheduler, after, after_any), origin))


def _plan_of_one(path: RunSource, site: str | None, settings: Sequence[str], *, later: bool) -> Plan:
    """The plan of the only run of a file. Raises UserError if the file makes several."""
    if is_sweep(path, site, settings):
        raise UserError(f"{path}: this file has a sweep: submit it with torusrun.sweep, or add sweep=null")
    return plan(path, site=site, settings=settings, later=later)


def plan_sweep(
    path: RunSource,
    *,
    site: str | None = None,
    settings: Sequence[str] = (),
    values: Sequence[str] = (),
    at_once: int | None = None,
    later: bool = False,
    sweep_id: str = "",
) -> PlannedSweep:
    """The plans of all members of a sweep; nothing is written. The arguments are those of `sweep`."""
    from torusrun.orchestrator.sweeps import plans

    asked = plans.SweepOptions(tuple(values), at_once)
    return plans.plan_sweep(path, site=site, settings=settings, asked=asked, later=later, sweep_id=sweep_id)


def sweep(
    path: RunSource,
    *,
    site: str | None = None,
    settings: Sequence[str] = (),
    values: Sequence[str] = (),
    at_once: int | None = None,
    after: Sequence[str] = (),
    after_any: Sequence[str] = (),
    planned: PlannedSweep | None = None,
    origin: Origin | None = None,
) -> Sweep:
    """Submit the sweep of the run file at `path`: a run for every combination of its values.

    `values` ('train.batch=64,128') replace or add to those of the file. At most `at_once` members run at the same time.
    They begin when the runs `after` are COMPLETED and the runs `after_any` are over. `planned` are the plans, if the
    caller has made them. Raises as `submit` does.
    """
    later = bool(after or after_any)
    planned = planned or plan_sweep(path, site=site, settings=settings, values=values, at_once=at_once, later=later)
    if planned.site.host:
        from torusrun.orchestrator.cli.handles_there import SweepThere
        from torusrun.orchestrator.remote.host import of
        from torusrun.orchestrator.remote.of_file import submit as send
        from torusrun.orchestrator.remote.remote_runs import awaited_on
        from torusrun.orchestrator.sweeps.plans import one_of

        options = awaited_on(of(planned.site), after, after_any)
        options += [f"--sweep={value}" for value in values]
        options += [] if at_once is None else [f"--set=sweep.at_once={at_once}"]
        members = [member.run.run_id for member in planned.members]
        sent = one_of(planned)
        made = send("submit", sent, path, options, site=site, settings=settings, members=members)
        return SweepThere(made)
    from torusrun.orchestrator.sweeps.submit import first as submit_members

    awaited = to_wait_for(planned.site.scheduler, after, after_any)
    submit_members(planned, absolute(folder_of(path)), awaited, origin)
    return Sweep(planned.folder)


def open_sweep(word: str) -> Sweep:
    """A sweep by its id, the beginning of its id, the id of a member, or 'last'."""
    from torusrun.orchestrator.cli.handles_there import SweepThere
    from torusrun.orchestrator.remote import remote_runs

    if known := remote_runs.sweep(word, of_any=True):
        return SweepThere(known)
    return Sweep(find_sweep(word)[0])


def hold(
    path: str | Path,
    *,
    time: str | None = None,
    idle: str = "20m",
    name: str | None = None,
    site: str | None = None,
    settings: Sequence[str] = (),
    run_id: str = "",
    origin: Origin | None = None,
) -> Run:
    """Submit a job that holds the nodes of the run file at `path`: `submit(..., held=run.id)` starts attempts there.

    The nodes are held for `time` ('2h'; default: the file's), and released after `idle` without a running attempt.
    A request from another machine has a `run_id` and an `origin`.
    Raises as `submit` does.
    """
    planned = plan(path, site=site, settings=settings, later=True)
    time_s, idle_s = duration("--time", time) if time else None, duration("--idle", idle)
    if planned.site.host:
        from torusrun.orchestrator.cli.handles_there import RunThere
        from torusrun.orchestrator.remote.of_file import submit as send

        given = {"time": time, "idle": idle, "name": name}
        options = [f"--{key}={value}" for key, value in given.items() if value]
        run_id = held_plan(planned, time_s, name).run_id
        return RunThere(send("hold", planned, path, options, site=site, settings=settings, name=run_id))
    held = held_plan(planned, time_s, name, run_id)
    return Run(submit_first(held, absolute(path).parent, idle_s=idle_s, origin=origin))


def dry_run(
    path: RunSource,
    *,
    site: str | None = None,
    settings: Sequence[str] = (),
    after: Sequence[str] = (),
    after_any: Sequence[str] = (),
) -> DryRun:
    """The job of `submit`, and the programs it would run; nothing is written. Raises as `submit` does."""
    planned = _plan_of_one(path, site, settings, later=bool(after or after_any))
    if planned.site.host:
        raise UserError(
            f"the site is reached through {planned.site.host}: use `torusrun submit {path} --dry-run`, which runs there"
        )
    return look_ahead(planned, to_wait_for(planned.site.scheduler, after, after_any))


def open_run(word: str) -> Run:
    """A run by its id, the beginning of its id, its folder, or 'last'."""
    from torusrun.orchestrator.cli.handles_there import RunThere
    from torusrun.orchestrator.remote import remote_runs

    if known := remote_runs.find(word):
        return RunThere(known)
    return Run(index.find(word))


def __getattr__(name: str) -> Any:
    """The classes of runs on login nodes, and of planned sweeps."""
    if name in ("RunThere", "SweepThere"):
        from torusrun.orchestrator.cli import handles_there

        return getattr(handles_there, name)
    if name == "PlannedSweep":
        from torusrun.orchestrator.sweeps.plans import PlannedSweep

        return PlannedSweep
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Checkpoint",
    "DryRun",
    "Plan",
    "PlannedSweep",
    "Run",
    "RunThere",
    "State",
    "Sweep",
    "SweepThere",
    "TorusrunError",
    "View",
    "dry_run",
    "hold",
    "open_run",
    "open_sweep",
    "plan",
    "plan_sweep",
    "submit",
    "sweep",
]
