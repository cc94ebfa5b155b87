"""The one object every verb looks at: spec, site and grid, computed from what the user wrote.

The job reads the same plan back from the run folder, so what was shown before submitting and what the job does come
from the same functions.
"""

from __future__ import annotations

import json
import math
import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator import private, schedulers
from orchestrator.errors import SiteError, UserError
from orchestrator.placement.grid import Grid, choose
from orchestrator.plans import fits_command
from orchestrator.runs.folder import Attempt, RunFolder
from orchestrator.schedulers.seam import Request, filled, not_plain
from orchestrator.spec.load import Loaded, load
from orchestrator.spec.paths import absolute, expanded
from orchestrator.spec.problems import SpecError
from orchestrator.spec.read import read_value
from orchestrator.spec.run import RunSpec
from orchestrator.spec.site import Site
from orchestrator.spec.write import as_written

if TYPE_CHECKING:
    from orchestrator.placement.arrange import Arrangement

SCHEMA = 1
MOST_RANKS = 1_000_000  # beyond, a plan would take minutes
LARGEST_BYTES = 4_000_000  # of a plan; a spec has at most 1 MB
HANG_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Plan:
    """Everything that is decided before a run is submitted."""

    run_id: str
    run: RunSpec
    site: Site
    folder: Path
    python: str
    spec_text: str = ""

    @property
    def ranks_per_node(self) -> int:
        return self.run.ranks_per_node or self.site.node.ranks

    @property
    def ranks(self) -> int:
        return self.run.nodes * self.ranks_per_node

    @property
    def grid(self) -> Grid:
        return choose(self.ranks, self.ranks_per_node, self.run.grid)

    @property
    def code(self) -> Path | None:
        """The folder whose code is copied at submit; None where there is none."""
        return Path(self.run.code) if self.run.command and self.run.code not in (None, fits_command.NO_CODE) else None

    @property
    def hang_timeout_s(self) -> float:
        """How long the ranks may make no progress: a command says nothing of its progress unless it is asked to."""
        limit_s = self.run.hang_timeout_s
        return limit_s if limit_s is not None else math.inf if self.run.command else HANG_TIMEOUT_S

    @property
    def stop_before_s(self) -> float:
        """How long before the time limit the ranks are asked to stop."""
        before_s = self.run.stop.before_s
        return self.site.stop_before_s if before_s is None else before_s

    @property
    def environment(self) -> dict[str, str]:
        """What the ranks' environment gets: the site's variables, then the run's."""
        return {**self.site.env, **self.run.env}

    def request(self, attempt: Attempt, after: tuple[str, ...] = ()) -> Request:
        """What an attempt's job asks for, to begin when the jobs `after` are over.

        The job's name is the run's id, in the queue with the attempt's number: unique, so it can be found again.
        """
        node, site = self.site.node, self.site
        account = self.run.account or site.account
        return Request(
            name=self.run_id,
            token=f"{self.run_id}.{attempt.number}",
            nodes=self.run.nodes,
            ranks_per_node=self.ranks_per_node,
            cpus_per_rank=node.cpus_per_rank,
            gpus_per_node=node.gpus,
            memory_bytes=node.memory_bytes,
            time_s=self.run.time_s,
            queue=self.run.queue or site.queue,
            stdout=attempt.stdout,
            stderr=attempt.stderr,
            extra=site.scheduler_args,
            after=after,
            **in_its_words(site, self.run.nodes, self.ranks_per_node, account),
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "run": self.run_id,
            "folder": str(self.folder),
            "python": self.python,
            "grid": [self.grid.x, self.grid.y],
            "ranks": self.ranks,
            "ranks_per_node": self.ranks_per_node,
            "spec": as_written(self.run),
            "site": as_written(self.site),
        }


def in_its_words(site: Site, nodes: int, ranks_per_node: int, account: str | None) -> dict[str, Any]:
    """What a request says in the site's own words: `ask`, `submit_args`, and the account unless these name it.

    Raises UserError when they name an account and there is none.
    """
    if _names_account(site) and not account:
        raise UserError("the site names {account} in what it asks its scheduler for: write 'account' into its file")
    numbers: dict[str, Any] = {
        "nodes": nodes,
        "ranks_per_node": ranks_per_node,
        "cpus_per_rank": site.node.cpus_per_rank,
        "gpus": site.node.gpus,
        "account": account,
    }
    return {
        "ask": filled(site.ask, **numbers),
        "submit_args": filled(site.submit_args, **numbers),
        "account": None if _names_account(site) else account,
    }


def _names_account(site: Site) -> bool:
    return any("{account}" in text for text in (*site.ask, *site.submit_args))


def plan(path: str | Path, *, site: str | None = None, settings: Sequence[str] = ()) -> Plan:
    """Compute the plan of the run file at `path`. Raises SpecError where the run does not fit together."""
    loaded = load(path, site=site, settings=settings)
    _check(loaded)
    run = _beside(loaded.run, absolute(path).parent)
    run_id = f"{loaded.run.name}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    folder = absolute(loaded.site.runs) / run_id
    return Plan(run_id, run, loaded.site, folder, loaded.site.python or sys.executable, loaded.text)


def _beside(run: RunSpec, folder: Path) -> RunSpec:
    """The run with the paths of its image and code made absolute: they are written relative to the run's file."""
    image = str(absolute(run.image, folder)) if run.image and _is_path(run.image) else run.image
    code = run.code if run.code == fits_command.NO_CODE else str(absolute(run.code or ".", folder))
    return replace(run, image=image, code=code if run.command else None)


def _is_path(image: str) -> bool:
    return "/" in image or image.endswith((".yaml", ".yml", ".sif"))


def arranged(plan: Plan, hosts: Sequence[str]) -> Arrangement | None:
    """The hosts in the order of the network, or None where nothing is known of it or they are not as many as planned.

    Raises SiteError when the topology cannot be had, or does not know one of the hosts.
    """
    if plan.site.topology is None or len(set(hosts)) < plan.run.nodes:
        return None
    from orchestrator.cluster.profile import cluster  # costs most of what starting `status` may cost
    from orchestrator.placement.arrange import arrange

    known = cluster(plan.site, hosts)
    return arrange((plan.grid.x, plan.grid.y), hosts, plan.ranks_per_node, known) if known else None


def read_plan(run: RunFolder, number: int) -> Plan:
    """The plan of an attempt, or the run's first one where that cannot be read. Raises SiteError when neither can."""
    try:
        return _read(run.attempt(number).plan, run.folder)
    except SiteError as error:
        try:
            return _read(run.plan, run.folder)
        except SiteError:
            raise error from None


def _read(path: Path, folder: Path) -> Plan:
    try:
        kept = json.loads(private.read_bytes(path, LARGEST_BYTES))
        if kept["schema"] != SCHEMA:
            raise SiteError(f"{path}: this is schema {kept['schema']}; this torusrun reads schema {SCHEMA}")
        run = read_value(RunSpec, kept["spec"], f"{path} (spec)")
        site = read_value(Site, kept["site"], f"{path} (site)")
        return Plan(kept["run"], run, site, folder, kept["python"])
    except OSError as error:
        raise SiteError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, SpecError) as error:
        raise SiteError(f"{path}: the plan is damaged: {error}") from None


def _check(loaded: Loaded) -> None:
    """What must fit between keys, and so cannot be checked one key at a time."""
    if loaded.site.scheduler not in schedulers.KNOWN:
        raise SpecError([loaded.site_problem("scheduler", f"'scheduler': {schedulers.unknown(loaded.site.scheduler)}")])
    problems = [loaded.problem(key, message) for key, message in _misfits(loaded.run, loaded.site)]
    of_command = fits_command.misfits(loaded.run, loaded.marks, absolute(loaded.source).parent)
    problems += [loaded.problem(key, message) for key, message in of_command]
    problems += [loaded.site_problem(key, message) for key, message in _site_misfits(loaded.run, loaded.site)]
    if problems:
        raise SpecError(problems)


def _misfits(run: RunSpec, site: Site) -> Iterator[tuple[str, str]]:
    """(key, what is wrong) for every pair of keys that do not go together."""
    ranks_per_node = run.ranks_per_node or site.node.ranks
    ranks = run.nodes * ranks_per_node
    if schedulers.get(site.scheduler).one_machine and run.nodes != 1:
        yield "nodes", "'nodes' must be 1 on a local site: it is this machine; raise ranks_per_node instead"
    elif site.launcher == "spawn" and run.nodes != 1:
        yield "nodes", "'nodes' must be 1 with the launcher 'spawn'; several nodes take srun or mpirun"
    if ranks > MOST_RANKS:
        yield "nodes", f"'nodes': {run.nodes} nodes of {ranks_per_node} ranks are {ranks}; the most is {MOST_RANKS}"
        return
    try:
        choose(ranks, ranks_per_node, run.grid)
    except ValueError as error:
        yield "grid", f"'grid': {error} (nodes {run.nodes} x ranks per node {ranks_per_node})"
    if not run.command and run.train.batch % ranks:
        near = max(1, round(run.train.batch / ranks)) * ranks
        yield "train.batch", f"'train.batch' {run.train.batch} does not divide by {ranks} ranks; try {near}"
    if not run.command and run.train.warmup_epochs > run.train.epochs:
        yield "train.warmup_epochs", f"'train.warmup_epochs' is longer than the {run.train.epochs} epochs of the run"
    if _names_account(site) and not (run.account or site.account):
        yield (
            "account",
            "'account' is missing: the site names it in its request; write the account to charge",
        )
    if run.stop.before_s is not None and run.time_s <= run.stop.before_s:
        yield "stop.before", f"'stop.before' must be shorter than 'time' ({run.time_s:g}s)"
    elif run.stop.before_s is None and run.time_s <= site.stop_before_s:
        yield "time", f"'time' must be longer than the site's stop_before ({site.stop_before_s:g}s)"
    if run.image and _is_path(run.image):
        yield from _not_paths({"image": run.image})
    yield from _not_words({"queue": run.queue, "account": run.account}, site)


def _site_misfits(run: RunSpec, site: Site) -> Iterator[tuple[str, str]]:
    """The same for keys of the site."""
    container, topology = site.container, site.topology
    yield from _not_paths(
        {
            "runs": site.runs,
            "topology.file": topology.file if topology else None,
            "container.cache": container.cache,
            "container.stage": container.stage,
            "container.temporary": container.temporary,
            "container.host_mpi": container.host_mpi,
        }
    )
    yield from _not_words(
        {"queue": None if run.queue else site.queue, "account": None if run.account else site.account}, site
    )


def _not_paths(paths: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    for key, text in paths.items():
        try:
            expanded(text or ".")
        except UserError as error:
            yield key, f"'{key}': {error}"


def _not_words(words: Mapping[str, str | None], site: Site) -> Iterator[tuple[str, str]]:
    """Queues and accounts that the site's scheduler, or the site's own words for it, cannot carry."""
    for key, word in words.items():
        filled_in = key == "account" and _names_account(site)
        refuses = not_plain if filled_in else schedulers.get(site.scheduler).refuses
        if word and (reason := refuses(word)):
            yield key, f"'{key}': {word!r} {reason}"
