"""The plan of a run: everything that is decided before its submission, computed from the user's files."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.forecast.checkpoints import mean_time_to_failure_s
from torusrun.orchestrator.images import source
from torusrun.orchestrator.keys.load import Loaded, RunSource, load
from torusrun.orchestrator.keys.main_role import image_of, services
from torusrun.orchestrator.keys.nodes import KeyValue
from torusrun.orchestrator.keys.paths import absolute, expanded
from torusrun.orchestrator.keys.run import EACH, NO_CODE, RunSpec
from torusrun.orchestrator.keys.shared import Notify, Secret, plain, secret
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.keys.write import as_written
from torusrun.orchestrator.place.placement.grid import Grid, asked
from torusrun.orchestrator.run.plan import roles
from torusrun.orchestrator.run.plan.fits import check
from torusrun.orchestrator.schedulers.launchers import family
from torusrun.training.recipe.files import Change
from torusrun.training.recipe.names import SCHEDULES

SCHEMA = 1


@dataclass(frozen=True)
class ChosenGrid:
    """The grid of a run with `grid: auto`, and the reason for it."""

    grid: Grid
    reason: str


@dataclass(frozen=True)
class Plan:
    """The spec, site and grid that every verb uses. `chosen` is the chosen grid of `grid: auto`; None before.

    The spec contains the values of the recipe that it names, and `recipe_changes` are the run's changes to them.
    """

    run_id: str
    run: RunSpec
    site: Site
    folder: Path
    python: str
    spec_text: str = ""
    chosen: ChosenGrid | None = None
    recipe_changes: tuple[Change, ...] = ()
    sources: tuple[str, ...] = ()  # the files of the run and its site; () for a kept plan

    @property
    def ranks_per_node(self) -> int:
        return roles.ranks_per_node(self.run, self.site, "")

    @property
    def ranks(self) -> int:
        return self.run.nodes * self.ranks_per_node

    @property
    def service_nodes(self) -> int:
        """The nodes that services have besides those of the main role. On one machine all roles share it."""
        if schedulers.get(self.site.scheduler).traits.one_machine:
            return 0
        return sum(role.nodes for role in services(self.run).values() if role.on is None)

    @property
    def all_nodes(self) -> int:
        """The nodes of all roles."""
        return self.run.nodes + self.service_nodes

    @property
    def asked_nodes(self) -> int:
        """The nodes that its jobs ask for, with spares."""
        return self.all_nodes + self.run.keep_going.spares

    @property
    def all_ranks(self) -> int:
        """The ranks of all roles."""
        return self.ranks + roles.ranks_of_services(self.run, self.site)

    @property
    def most_ranks_on_a_node(self) -> int:
        """The ranks of all roles on the node that has most of them."""
        return roles.most_on_a_node(self.run, self.site)

    @property
    def _decided(self) -> Grid | None:
        return self.chosen.grid if self.chosen else asked(self.ranks, self.ranks_per_node, self.run.grid)

    @property
    def has_grid(self) -> bool:
        """Whether the grid is decided. `auto` on several nodes is decided for the hosts (auto_grid.py)."""
        return self._decided is not None

    @property
    def grid(self) -> Grid:
        """The decided grid. Raises UserError before it is decided."""
        if self._decided is None:
            raise UserError("'grid' is auto: it is chosen once the hosts are known")
        return self._decided

    @property
    def code(self) -> Path | None:
        """The folder of the code that is copied at submit; None if none is copied."""
        return Path(self.run.code) if self.run.code not in (None, NO_CODE) else None

    @property
    def jobs(self) -> int:
        """The number of jobs that work for the run one after the other, without its user."""
        return self.run.keep_going.attempts

    @property
    def jobs_in_turn(self) -> bool:
        """Whether each of these jobs is submitted by itself, to begin after the job before it."""
        one_machine = schedulers.get(self.site.scheduler).traits.one_machine
        return self.jobs > 1 and self.site.attempts_by == "dependency" and not one_machine

    @property
    def keeps_going(self) -> bool:
        """Whether the job itself begins the next attempt after an early end."""
        return self.jobs > 1 or self.run.keep_going.spares > 0 or self.run.keep_going.min_nodes is not None

    @property
    def outlives_hosts(self) -> bool:
        """Whether the job of the run is to continue without the hosts that it loses."""
        return self.run.keep_going.spares > 0 or (self.run.keep_going.min_nodes or self.run.nodes) < self.run.nodes

    @property
    def stop_before_s(self) -> float:
        """The seconds before the time limit at which the ranks are asked to stop."""
        before_s = self.run.stop.before_s
        return self.site.stop_before_s if before_s is None else before_s

    @property
    def mean_time_to_failure_s(self) -> float:
        """The mean time between failures of its job."""
        return mean_time_to_failure_s(self.site.node.mean_time_to_failure_s, self.all_nodes, self.ranks)

    @property
    def has_preflight(self) -> bool:
        """Whether the nodes and their links are checked before the ranks start."""
        asked = self.run.preflight
        return self.site.preflight.enabled and self.all_nodes > 1 if asked is None else asked

    @property
    def environment(self) -> dict[str, str]:
        """The variables for the ranks without the secret ones: the site's, overridden by the run's."""
        return plain({**self.site.env, **self.run.env})

    @property
    def jobs_environment(self) -> dict[str, str]:
        """`environment` without the main role's own: the other roles inherit the variables of the job."""
        own = next((role.env for role in self.run.roles.values() if role.main), {})
        return {name: value for name, value in self.environment.items() if name not in own}

    @property
    def is_private(self) -> bool:
        """Whether its texts may hold secrets, so that only the user may read them: variables, or words of `setup`."""
        lines = "\n".join((*self.site.setup, *self.run.setup))
        own = any(role.env for role in self.run.roles.values())
        if own or self.environment or not lines:
            return own or bool(self.environment)
        from torusrun.orchestrator.run.folder.without_secrets import patterns  # imported late: few runs have `setup`

        return any(pattern.search(lines) for pattern, _ in patterns())

    @property
    def secrets(self) -> dict[str, Secret]:
        """The secret variables for the ranks."""
        return secret({**self.site.env, **self.run.env})

    @property
    def notify(self) -> Notify:
        """The notices of the run: its own keys, and those of its site where they are missing."""
        return self.run.notify.over(self.site.notify)

    @property
    def secret_sources(self) -> list[str]:
        """The files from which `submit` reads secret values."""
        return [str(expanded(secret.file)) for secret in self.secrets.values() if secret.file]

    @property
    def secret_files(self) -> tuple[str, ...]:
        """The files that may hold secrets. Copies of them must be private."""
        return self.sources if self.is_private else ()

    @property
    def recipe(self) -> dict[str, Any] | None:
        """The recipe that the run names and its changes to it, as JSON; None without a recipe."""
        if self.run.train.recipe is None or self.run.command:
            return None
        return {"name": self.run.train.recipe, "changes": [change._asdict() for change in self.recipe_changes]}

    def as_json(self) -> dict[str, Any]:
        """The object for the run folder; `grid` is "auto" if the job must choose it."""
        return {
            "schema": SCHEMA,
            "run": self.run_id,
            "folder": str(self.folder),
            "python": self.python,
            "grid": list(self._decided.dims) if self._decided else "auto",
            **({"grid_reason": self.chosen.reason} if self.chosen else {}),
            **({"recipe": self.recipe} if self.recipe else {}),
            "ranks": self.ranks,
            "ranks_per_node": self.ranks_per_node,
            "spec": as_written(self.run),
            "site": as_written(self.site),
        }


def plan(
    path: RunSource,
    *,
    site: str | None = None,
    settings: Sequence[str | KeyValue] = (),
    run_id: str | None = None,
    later: bool = False,
) -> Plan:
    """Compute the plan of the run file at `path`; `run_id` is an id chosen elsewhere, if any.

    The values of a sweep are left out: sweeps/ makes a plan with each of them. `later` says that it begins after
    other runs or in a held allocation: missing files may exist then. Raises SpecError if keys of the run do not fit
    together.
    """
    loaded, changes = _filled_in(_with_nodes(load(path, site=site, settings=settings)))
    check(loaded, later=later)
    run = _beside(loaded.run, loaded.folder)
    if run.each:
        from torusrun.orchestrator.run.folder import index  # imported late: few runs judge another

        run = replace(run, each=f"{EACH}{index.find(run.judged).folder}")
    run_id = run_id or new_id(loaded.run.name)
    folder = absolute(loaded.site.runs) / run_id
    return Plan(
        run_id, run, loaded.site, folder, loaded.site.interpreter, loaded.text, recipe_changes=changes,
        sources=loaded.files,
    )  # fmt: skip


def notes(plan: Plan) -> list[str]:
    """Effects of a plan that a user may not expect, but that are not errors, one line each."""
    train = plan.run.train
    keys, peak = train.schedule, train.optimizer.lr
    by_phases = any(phase.lr for phase in train.phases)
    if plan.run.command or by_phases or keys.name not in SCHEDULES.known or keys.warmup_epochs <= train.epochs:
        return []
    last = peak * train.epochs / keys.warmup_epochs
    why = f"train.schedule.warmup_epochs is {keys.warmup_epochs:g}, and train.epochs is {train.epochs}"
    return [f"the run ends in its warm-up, at lr {last:g}: {why}"]


def new_id(name: str) -> str:
    """An id for a run of this name, with the time."""
    return f"{name}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def _with_nodes(loaded: Loaded) -> Loaded:
    """The run, on as many nodes as its grid fills if it names a grid and no nodes."""
    run, site = loaded.run, loaded.site
    several, left = divmod(math.prod(run.grid or ()), run.ranks_per_node or site.node.ranks)
    if "nodes" in loaded.marks or not run.grid or not several or left or family(site.launcher).one_node:
        return loaded
    return replace(loaded, run=replace(run, nodes=several))


def _filled_in(loaded: Loaded) -> tuple[Loaded, tuple[Change, ...]]:
    """(the run with the values of its recipe for keys that its file lacks, its changes to the recipe)."""
    run, site = loaded.run, loaded.site
    if run.command or run.train.recipe is None:
        return loaded, ()
    from torusrun.training.recipe.published import resolve  # imported late: it reads YAML

    given = frozenset(key.removeprefix("train.") for key in loaded.marks if key.startswith("train."))
    ranks = run.nodes * (run.ranks_per_node or site.node.ranks)
    train, changes = resolve(run.train, given, ranks, gpus=site.gpus > 0)
    return replace(loaded, run=replace(run, train=train)), changes


def _beside(run: RunSpec, folder: Path) -> RunSpec:
    """The run with absolute paths of its image and code: in the run's file they are relative to it."""
    image = source.beside(run.image, folder) if run.image else None
    roles = {
        name: replace(role, image=source.beside(role.image, folder)) if image_of(run, role) and role.image else role
        for name, role in run.roles.items()
    }
    code = run.code if run.code == NO_CODE else str(absolute(run.code or ".", folder))
    has_code = run.command or run.roles or run.train.needs_code
    return replace(run, image=image, roles=roles, code=code if has_code else None, sweep=None)
