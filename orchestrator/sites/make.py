"""Writes a site's file: finds the scheduler, recognises the cluster, and asks for the remaining values."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.json_files import write_text
from torusrun.orchestrator.keys.editors import schema_line
from torusrun.orchestrator.keys.kinds import NAME
from torusrun.orchestrator.keys.load import site_folders
from torusrun.orchestrator.keys.problems import SpecError
from torusrun.orchestrator.keys.read import read
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.sites import detect, machine
from torusrun.orchestrator.sites.choices import Choices
from torusrun.orchestrator.sites.detect import GENERIC, KnownCluster, Reached, Recognition
from torusrun.orchestrator.sites.propose import propose, text
from torusrun.training.recipe.near import did_you_mean

Compose = Callable[["str | None", Choices], tuple[str, str]]


@dataclass(frozen=True)
class Written:
    """A site's file with its name and text."""

    name: str
    path: Path
    text: str


def make(name: str | None, choices: Choices, *, force: bool = False, compose: Compose | None = None) -> Written:
    """Write the site of this login node, or of the login node on which `compose` makes its name and text.

    Raises UserError for values that are not given, and for an existing file.
    """
    if name is not None:
        _free(_place(name), force)
    name, made = (compose or composed)(name, choices)
    place = _place(name)
    _free(place, force)
    try:
        read(Site, made, str(place))
    except SpecError as error:  # the scheduler may report a strange name
        raise SiteError(f"the values found here make no valid site: {error}") from None
    private.make(place.parent)
    written = Written(name, place, schema_line("site") + made)
    write_text(place, written.text)
    return written


def composed(name: str | None, choices: Choices) -> tuple[str, str]:
    """(the name of this login node's site, the text of its file). Raises UserError for values that are not given."""
    reached = _scheduler(choices)
    for remark in reached.facts.remarks:
        choices.say(remark)
    known = _cluster(reached, choices)
    settings = propose(reached, known, machine.look(), choices)
    title = f"{known.title if known else _title(reached)}: written by `torusrun init` on {time.strftime('%Y-%m-%d')}."
    return name or _name(reached, known), text(title, settings, reached.facts)


def _scheduler(choices: Choices) -> Reached:
    if given := choices.options.get("scheduler"):
        return detect.named_scheduler(given)
    answering = {reached.name: reached for reached in detect.reachable(choices.say)}
    versions = {name: reached.facts.version for name, reached in answering.items()}
    return answering[choices.one_of("scheduler", "scheduler", versions, next(iter(versions)), "PATH").value]


def _cluster(reached: Reached, choices: Choices) -> KnownCluster | None:
    """The known cluster of this login node, or None."""
    every = detect.CLUSTERS
    if given := choices.options.get("cluster"):
        if given not in every and given != GENERIC:
            known = f"known: {', '.join(every)}, {GENERIC}"
            raise UserError(f"--cluster {given}: this cluster is not known{did_you_mean(given, every)} ({known})")
        if given != GENERIC and (its := every[given].values["scheduler"]) != reached.name:
            raise UserError(f"--cluster {given}: its scheduler is {its}, and the scheduler here is {reached.name}")
        return every.get(given)
    names = {*(queue.name for queue in reached.facts.queues), *reached.facts.resources}
    gpus = {kind.gpus for queue in reached.facts.queues for kind in queue.kinds if kind.gpus}
    fitting = detect.recognised(reached.name, machine.host_names(), names, gpus)
    certain = [name for name, match in fitting.items() if match is Recognition.CERTAIN]
    if not fitting:
        return None
    if len(fitting) == len(certain) == 1:
        cluster = every[certain[0]]
        choices.say(f"this cluster looks like {cluster.title}; --cluster {GENERIC} treats it as an unknown one")
        return cluster
    described = {name: every[name].title for name in fitting} | {GENERIC: "none of these"}
    sensible = next(iter(certain), GENERIC)
    return every.get(choices.one_of("cluster", "cluster", described, sensible, "the names of queues and hosts").value)


def _name(reached: Reached, known: KnownCluster | None) -> str:
    """The default name of a site: the cluster's, or the scheduler's."""
    if known:
        return known.name
    if reached.one_machine:
        return "here"
    cluster = (reached.facts.cluster or reached.name).lower()
    try:
        return str(NAME.parse(cluster))
    except ValueError:
        return reached.name


def _title(reached: Reached) -> str:
    if reached.one_machine:
        return "This machine"
    cluster, scheduler = reached.facts.cluster, reached.name
    return f"Cluster {cluster} ({scheduler})" if cluster else f"A cluster ({scheduler})"


def _place(name: str) -> Path:
    """The first path that `--site NAME` tries. Raises UserError for an invalid name."""
    try:
        NAME.parse(name)
    except ValueError as error:
        raise UserError(f"{name!r} {error}") from None
    if name.endswith((".yaml", ".yml")):
        raise UserError(f"{name!r} would be a path for --site; write the name without its ending")
    return site_folders()[0] / f"{name}.yaml"


def _free(place: Path, force: bool) -> None:
    if place.exists() and not force:
        raise UserError(f"{place}: this site exists already; choose another NAME, or replace it with --force")
