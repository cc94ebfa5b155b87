"""Checks between the keys of a run's roles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from graphlib import CycleError

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.images import pyxis
from torusrun.orchestrator.keys.main_role import MAIN, image_of, main_name, services
from torusrun.orchestrator.keys.role_words import referred
from torusrun.orchestrator.keys.roles import Role
from torusrun.orchestrator.keys.run import RunSpec
from torusrun.orchestrator.keys.shared import plain
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.place.hosts.hostlist import number_ranges
from torusrun.orchestrator.run.plan.fits_command import misfits_of_pattern
from torusrun.orchestrator.run.plan.roles import cores, home, order, together
from torusrun.training.counted import counted
from torusrun.training.recipe.near import did_you_mean


def misfits(run: RunSpec, site: Site) -> Iterator[tuple[str, str]]:
    """(key, error) for every key of a role that does not fit others."""
    if not run.roles:
        return
    known = list(dict.fromkeys((main_name(run), *run.roles)))
    if MAIN in run.roles and not run.roles[MAIN].main:
        yield f"roles.{MAIN}", f"'roles.{MAIN}' is the name of the run's own program; choose another name"
    yield from _references(run, known)
    for name, role in run.roles.items():
        for other in role.after:
            if other not in known or other == name:
                wrong = "itself" if other == name else f"{other!r}, which is not a role{did_you_mean(other, known)}"
                yield f"roles.{name}.after", f"'roles.{name}.after' names {wrong}"
            elif other in run.roles and run.roles[other].each:
                yield f"roles.{name}.after", f"'roles.{name}.after': {other!r} is never ready: it judges checkpoints"
    try:
        order(run)
    except CycleError as error:
        circle = " and ".join(sorted({*error.args[1]}))
        yield "roles", f"'roles': {circle} wait for one another by their 'after'; take one of them out"
    for name, role in services(run).items():
        yield from _of_service(run, site, name, role, known)
    for name, role in run.roles.items():
        yield from _software(run, site, f"roles.{name}", role)
    yield from _shares(run, site)


def _software(run: RunSpec, site: Site, key: str, role: Role) -> Iterator[tuple[str, str]]:
    """Mistakes in the image of a role, and in its environment."""
    if pyxis.used(site.container.runtime) and image_of(run, role) != run.image:
        yield f"{key}.image", f"'{key}.image' differs from the main role's: Pyxis starts all ranks in one image"
    given = role.software.given
    if given and image_of(run, role):
        yield f"{key}.environment", f"'{key}.environment' has no effect in an image; write '{key}.image: none'"
    if len(given) > 1:
        yield f"{key}.environment", f"'{key}.environment' names venv and conda; write one of them"
    for name, path in given.items():
        if not path.startswith(("/", "~")):
            words = f"'{key}.environment.{name}': {path!r} is relative, and a job starts in another folder"
            yield f"{key}.environment.{name}", f"{words}; begin it with / or ~"


def _references(run: RunSpec, known: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every name in braces that is not a role."""
    texts = {main_name(run): (*run.command, *plain(run.env).values())}
    texts |= {name: (*role.command, *plain(role.env).values()) for name, role in services(run).items()}
    for name, own in texts.items():
        for other in sorted(referred(own) - {*known}):
            key = f"roles.{name}.command" if name in run.roles else "command"
            yield key, f"'{key}' names the role {other!r}, which the run does not have{did_you_mean(other, known)}"


def _of_service(run: RunSpec, site: Site, name: str, role: Role, known: Sequence[str]) -> Iterator[tuple[str, str]]:
    key = f"roles.{name}"
    if not role.command or not role.command[0]:
        yield f"{key}.command", f"'{key}.command' is missing: it is the program of the role"
    if role.on is not None:
        owner = run.roles.get(role.on)
        if role.on not in known or role.on == name:
            yield f"{key}.on", f"'{key}.on': {role.on!r} is not another role{did_you_mean(role.on, known)}"
        elif owner and owner.on is not None:
            yield f"{key}.on", f"'{key}.on': {role.on!r} is on {owner.on!r} itself; write 'on: {owner.on}'"
        if role.nodes != 1:
            yield f"{key}.nodes", f"'{key}.nodes' and '{key}.on' exclude each other; leave one of them out"
    elif role.nodes > 1 and schedulers.get(site.scheduler).traits.one_machine:
        yield f"{key}.nodes", f"'{key}.nodes' must be 1 on a local site: it is this machine"
    if len(role.ready.checks) > 1:
        yield f"{key}.ready", f"'{key}.ready' has {' and '.join(role.ready.checks)}; keep one of them"
    if role.each and (role.ready.checks or role.alive):
        yield f"{key}.each", f"'{key}.each': such a program ends by itself; leave out 'ready' and 'alive'"
    if role.newest and not role.each:
        yield f"{key}.newest", f"'{key}.newest' needs 'each: checkpoint'"
    yield from misfits_of_pattern(role.metrics.pattern or "", f"{key}.metrics.pattern")
    if role.alive and not (role.ready.http or role.ready.tcp):
        yield f"{key}.alive", f"'{key}.alive' repeats the check of '{key}.ready', which has neither http nor tcp"


def _shares(run: RunSpec, site: Site) -> Iterator[tuple[str, str]]:
    """Every role on whose nodes the roles take more GPUs than a node has, or the same cores."""
    for name in (main_name(run), *services(run)):
        if home(run, site, name) != name:
            continue
        roles = together(run, site, name)
        asked = {other: run.roles[other].gpus or 0 for other in roles if other in run.roles}
        if sum(asked.values()) > site.gpus:
            has = counted(site.gpus, "GPU") if site.gpus else "no GPUs (node.gpus of the site)"
            key = f"roles.{next(other for other, count in asked.items() if count)}.gpus"
            named = " and ".join(map(repr, asked))
            yield key, f"'{key}': {named} take {sum(asked.values())} GPUs of a node together, which has {has}"
            continue
        taken = Counter(core for other in roles for core in cores(run, site, other))
        if twice := sorted(core for core, times in taken.items() if times > 1):
            sharing = [other for other in roles if not {*twice}.isdisjoint(cores(run, site, other))]
            key = f"roles.{next(other for other in reversed(sharing) if other in run.roles)}.ranks_per_node"
            where = ",".join(number_ranges([*map(str, twice)]))
            named = " and ".join(map(repr, sharing))
            why = f"{named} are bound to the same cores of a node ({where}), which are too few for their ranks"
            yield key, f"'{key}': {why}; lower it, or correct node.gpu_cores of the site"
