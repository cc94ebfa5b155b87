"""The main role of a run, which is the run itself, and the other roles, its services.

`with_main` moves the keys of the main role to the run, so that grid, placement, checkpoints and all else that a run has
are those of its main role. Services start and end with each attempt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace

from torusrun.orchestrator.keys.problems import Mark, Problem
from torusrun.orchestrator.keys.roles import NO_IMAGE, Role
from torusrun.orchestrator.keys.run import RunSpec
from torusrun.orchestrator.keys.shared import plain
from torusrun.training.recipe.key import key_of

MAIN = "main"  # the main role's name in a run whose own `train` or `command` is the main role
OF_MAIN = ("nodes", "ranks_per_node", "command", "stop", "metrics", "image")  # they become those of the run
OF_SERVICES = ("on", "ready", "alive", "restart", "each", "newest")  # keys that only a service has


def main_name(run: RunSpec) -> str:
    """The name of the main role."""
    return next((name for name, role in run.roles.items() if role.main), MAIN)


def services(run: RunSpec) -> dict[str, Role]:
    """The roles besides the main role."""
    return {name: role for name, role in run.roles.items() if not role.main}


def awaited(run: RunSpec) -> dict[str, tuple[str, ...]]:
    """The roles that must be ready before each role starts.

    A role for each checkpoint comes after the main role. A main role that is the run's own `train` or `command` comes
    after all services that do not wait for it.
    """
    main = main_name(run)
    waits = {name: role.after for name, role in run.roles.items()}
    waits |= {name: (*role.after, main) for name, role in run.roles.items() if role.each and main not in role.after}
    if main not in run.roles:
        waiting = {MAIN}
        while more := {name for name, after in waits.items() if waiting.intersection(after)} - waiting:
            waiting |= more
        waits = {MAIN: tuple(name for name in waits if name not in waiting), **waits}
    return waits


def image_of(run: RunSpec, role: Role) -> str | None:
    """The image of a role; None for the host."""
    return run.image if role.image is None else None if role.image == NO_IMAGE else role.image


def named_images(run: RunSpec) -> dict[str, str]:
    """The images that a run names, by their keys."""
    named = {f"roles.{name}.image": role.image for name, role in run.roles.items() if role.image}
    own = {"image": run.image} if run.image and run.image not in named.values() else {}
    return {key: image for key, image in {**own, **named}.items() if image != NO_IMAGE}


def with_main(run: RunSpec, marks: Mapping[str, Mark]) -> tuple[RunSpec, list[Problem]]:
    """(the run with the keys of its main role, mistakes in roles that only their places in the file show).

    A service gets the variables of the run besides its own.
    """
    mains = [name for name, role in run.roles.items() if role.main]
    problems = [
        Problem(marks[f"roles.{name}.main"], f"'roles.{name}.main': {mains[0]!r} is the main role already; keep one")
        for name in mains[1:]
    ]
    for name in mains[:1]:
        problems += _misplaced(run, name, marks)
    if not run.roles or problems:
        return run, problems
    shared = plain(run.env)
    roles = {n: role if role.main else replace(role, env={**shared, **role.env}) for n, role in run.roles.items()}
    run = replace(run, roles=roles)
    if not mains:
        return run, []
    main = roles[mains[0]]
    given = (field.name for field in fields(main) if f"roles.{mains[0]}.{key_of(field)}" in marks)
    own = {field: getattr(main, field) for field in given if field in OF_MAIN}
    if "image" in own:  # the others keep the run's
        roles = {name: replace(role, image=role.image or run.image or NO_IMAGE) for name, role in roles.items()}
        own["image"] = image_of(run, main)
    return replace(run, **{**own, "roles": roles, "nodes": main.nodes, "env": {**run.env, **main.env}}), []


def _misplaced(run: RunSpec, name: str, marks: Mapping[str, Mark]) -> Iterator[Problem]:
    """Keys of the main role that only services have, and keys of the run that differ from those of its roles."""
    for each in OF_SERVICES:
        if (mark := marks.get(f"roles.{name}.{each}")) is not None:
            yield Problem(mark, f"'roles.{name}.{each}' is a key of services, and {name!r} is the main role")
    for each in ("command", "ranks_per_node", "train"):
        if each in marks and (each == "train" or f"roles.{name}.{each}" in marks):
            yield Problem(marks[each], f"{each!r} stands in the run, whose main role is {name!r}; keep one of them")
    total = run.roles[name].nodes + sum(role.nodes for role in services(run).values() if role.on is None)
    if "nodes" in marks and run.nodes != total:
        yield Problem(marks["nodes"], f"'nodes' is {run.nodes}, and the roles have {total}; leave it out")
    if not run.roles[name].command:
        yield Problem(marks[f"roles.{name}"], f"'roles.{name}.command' is missing: it is the program of the run")
