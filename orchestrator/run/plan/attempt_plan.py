"""The plan of an attempt: the run's plan with the changes of this attempt and of earlier ones."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.keys.kinds import DURATION, GRID, NODES, Kind
from torusrun.orchestrator.keys.request import MEMORY
from torusrun.orchestrator.place.hosts import hostlist
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.run.bad_nodes.bad_node import HOST
from torusrun.orchestrator.run.bad_nodes.left_out import LeftOutNodes
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Changes, Event, Started, Submitting
from torusrun.orchestrator.run.plan.fits import Misfit, misfits
from torusrun.orchestrator.run.plan.plan import ChosenGrid, Plan

MOST_EXCLUDED = 10_000


@dataclass(frozen=True)
class AttemptPlan:
    """The plan that the job of an attempt reads and its request uses. It never changes once it is written.

    `changes` are this attempt's own changes. `exclude` are the excluded hosts, also those of earlier attempts.
    `left_out` are the bad hosts that were known when it was made.
    """

    number: int
    plan: Plan
    changes: Changes = Changes()
    exclude: tuple[str, ...] = ()
    left_out: LeftOutNodes = LeftOutNodes()

    @property
    def excluded(self) -> tuple[str, ...]:
        """All hosts that its request leaves out."""
        return tuple(dict.fromkeys((*self.exclude, *self.left_out.hosts)))


def first(plan: Plan) -> AttemptPlan:
    """The plan of a run's first attempt."""
    return AttemptPlan(1, plan)


def derive(plan: Plan, history: Sequence[Event], number: int, changes: Changes) -> AttemptPlan:
    """The plan of attempt `number` from the run's plan, the ledger's events and the user's changes for this attempt.

    Changes of earlier attempts also hold for later ones. Raises UserError with the option's name for a misfit.
    """
    total = changed_before(history, number).then(changes)
    run = replace(
        plan.run,
        nodes=plan.run.nodes if total.nodes is None else total.nodes,
        time_s=plan.run.time_s if total.time_s is None else total.time_s,
        grid=plan.run.grid if total.grid is None else total.grid,
    )
    site = plan.site
    if total.memory_bytes is not None:
        asked = replace(site.request, memory_bytes=total.memory_bytes, memory_per_rank_bytes=None)
        site = replace(site, request=asked)
    derived = AttemptPlan(number, replace(plan, run=run, site=site), changes, total.exclude)
    if changes != Changes():
        _check(derived)
    return derived


def with_former_grid(planned: AttemptPlan, history: Sequence[Event]) -> Plan:
    """The plan of an attempt. If the run leaves the grid to the job, it is the grid of the previous attempt.

    Only the same grid resumes with bit-identical results. The previous grid is not used if it does not fit the number
    of ranks, or if the user requests a new choice (--grid auto).
    """
    plan = planned.plan
    if plan.has_grid or planned.changes.grid is not None:
        return plan
    before = [event for event in history if isinstance(event, Started) and event.attempt < planned.number]
    if not before or not before[-1].grid or math.prod(before[-1].grid) != plan.ranks:
        return plan
    reason = f"auto: as in attempt {before[-1].attempt}, since only the same grid gives the same bits"
    return replace(plan, chosen=ChosenGrid(Grid(before[-1].grid), reason))


def changed_before(history: Sequence[Event], number: float) -> Changes:
    """The combined changes of the attempts before `number`; a refused attempt changed nothing."""
    total = Changes()
    for earlier, stands in sorted(ledger.standing(history).items()):
        submitting = ledger.last(history, Submitting, earlier)
        if stands and submitting and earlier < number:
            total = total.then(submitting.changes)
    return total


def changes(
    time: str | None = None,
    nodes: int | None = None,
    grid: str | None = None,
    exclude: Sequence[str] = (),
    memory: str | None = None,
) -> Changes:
    """The changes by the options of `resume`. Raises UserError with the option's name."""
    time_s = option("--time", DURATION, time) if time else None
    if nodes is not None and (wrong := NODES.complaint(nodes)):
        raise UserError(f"--nodes {wrong}, not {nodes}")
    size = option("--grid", GRID, grid) if grid else None
    memory_bytes = option("--mem", MEMORY, memory) if memory else None
    return Changes(time_s, nodes, size, tuple(hosts("--exclude", exclude)), memory_bytes)


def option(name: str, kind: Kind, text: str) -> Any:
    """The value of an option. Raises UserError with the option's name."""
    try:
        return kind.parse(text)
    except ValueError as error:
        raise UserError(f"{name}: {text!r} {error}") from None


def hosts(name: str, texts: Sequence[str]) -> list[str]:
    """The hosts in several host lists, each once. Raises UserError with the name of the option that has them."""
    try:
        named = list(dict.fromkeys(host for text in texts for host in hostlist.expand(text, MOST_EXCLUDED)))
    except SiteError as error:
        raise UserError(f"{name}: {error}") from None
    if strange := [host for host in named if not re.fullmatch(HOST, host)]:
        raise UserError(f"{name}: {strange[0]!r} is not a name of a host")
    return named


def _check(derived: AttemptPlan) -> None:
    """Raise UserError with all misfits after the attempt's changes."""
    plan = derived.plan
    wrong = list(dict.fromkeys(_named(misfit, derived.changes) for misfit in misfits(plan.run, plan.site)))
    if derived.exclude and (reason := schedulers.get(plan.site.scheduler).traits.cannot_exclude):
        wrong.append(f"--exclude: {reason}")
    traits, most_bytes = schedulers.get(plan.site.scheduler).traits, plan.site.most.memory_bytes
    if derived.changes.memory_bytes is not None:
        if "memory" not in traits.says or (plan.site.ask and "memory" in traits.asked_by):
            wrong.append("--mem: the requests of this site do not name memory")
        elif most_bytes and derived.changes.memory_bytes > most_bytes:
            wrong.append(f"--mem: the site's most.memory is {most_bytes / 2**30:g} GiB")
    if wrong:
        raise UserError("\n".join(wrong))


def _named(misfit: Misfit, made: Changes) -> str:
    """The message of a misfit, with the options that caused it."""
    options = dict(_options(made))
    if misfit.key in options:
        why = misfit.message.removeprefix(f"'{misfit.key}'").lstrip(": ")
        return f"{options[misfit.key]}: {why}"
    cause = options.get("nodes") or " ".join(options.values())
    return f"{cause}: {misfit.message}{'; give --grid as well, as in --grid auto' if misfit.key == 'grid' else ''}"


def _options(made: Changes) -> Iterator[tuple[str, str]]:
    """(key of a run, its option) for every change."""
    if made.time_s is not None:
        yield "time", f"--time {made.time_s:g}s"
    if made.nodes is not None:
        yield "nodes", f"--nodes {made.nodes}"
    if made.grid is not None:
        yield "grid", f"--grid {GRID.write(made.grid)}"
