"""The keys of roles: several programs in one allocation, of which one is the run's own, and the others serve it.

The main role is the run: `with_main` moves its keys to the run, so that grid, placement, checkpoints and all else that
a run has are those of its main role. The other roles are services, which start and end with each attempt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated

from torusrun.orchestrator.keys import kinds
from torusrun.orchestrator.keys.problems import Mark, Problem
from torusrun.orchestrator.keys.program import StopSettings
from torusrun.orchestrator.keys.secret import plain
from torusrun.training.recipe.key import Limits, key, key_of

if TYPE_CHECKING:
    from torusrun.orchestrator.keys.run import RunSpec

MAIN = "main"  # the main role's name in a run whose own `train` or `command` is the main role
ROLE_NAME = kinds.text_kind(
    "a role's name", "[a-z][a-z0-9_]{0,30}", "use small letters, digits and '_', beginning with a letter, at most 31"
)
RESTARTS = Limits(at_least=0, at_most=1000)
OF_MAIN = ("nodes", "ranks_per_node", "command", "stop")  # keys of the main role that become those of the run
OF_SERVICES = ("on", "ready", "alive", "restart")  # keys that only a service has


@dataclass(frozen=True)
class Ready:
    """When a service is ready; without a key, once it has started. Its first rank's host checks it, every second."""

    http: Annotated[str, kinds.URL_PATH] | None = key(
        None, "a path, as /health, for which its port answers with a 2xx status"
    )
    tcp: bool = key(False, "whether its port accepts connections")
    log: Annotated[str, kinds.REGULAR] | None = key(None, "a regular expression that a line of its output matches")
    file: Annotated[str, kinds.LINE] | None = key(None, "a file that exists; relative to its working directory")
    within_s: Annotated[float, kinds.DURATION] = key(
        600.0, "how long it may take after its start; then the attempt ends", name="within"
    )

    @property
    def checks(self) -> tuple[str, ...]:
        """The names of its checks."""
        return tuple(name for name in ("http", "tcp", "log", "file") if getattr(self, name))


@dataclass(frozen=True)
class Role:
    """One of several programs of a run."""

    nodes: Annotated[int, kinds.NODES] = key(1, "nodes of its own")
    on: Annotated[str, ROLE_NAME] | None = key(None, "the role on whose nodes it runs, in place of nodes of its own")
    ranks_per_node: Annotated[int, kinds.PER_NODE] | None = key(
        None, "ranks on each of its nodes; default: 1, of the main role the site's node.ranks"
    )
    gpus: Annotated[int, kinds.NONE_OR_MORE] | None = key(
        None, "GPUs of each of its nodes; default: all that roles on its nodes leave, with 'on' none"
    )
    command: tuple[Annotated[str, kinds.ARGUMENT], ...] = key(
        (), "its program, one word each; {port}, {ROLE.hosts}, {ROLE.address}, {ROLE.port} and {ROLE.url} are filled in"
    )
    env: dict[Annotated[str, kinds.VARIABLE], Annotated[str, kinds.VALUE]] = key(
        {}, "its environment variables besides the run's, which have the secrets"
    )
    after: tuple[Annotated[str, ROLE_NAME], ...] = key((), "roles that must be ready before it starts")
    ready: Ready = key(Ready(), "when it is ready")
    alive: bool = key(False, "end the attempt if the service, once ready, fails its check for a minute")
    restart: Annotated[int, RESTARTS] = key(
        0, "times that each of its ranks is started again after an end; then such an end is the attempt's"
    )
    stop: StopSettings = key(StopSettings(), "how it is stopped")
    main: bool = key(False, "this role is the run: the run ends with it, and its checkpoints are those of the run")


def main_name(run: RunSpec) -> str:
    """The name of the main role."""
    return next((name for name, role in run.roles.items() if role.main), MAIN)


def services(run: RunSpec) -> dict[str, Role]:
    """The roles besides the main one."""
    return {name: role for name, role in run.roles.items() if not role.main}


def awaited(run: RunSpec) -> dict[str, tuple[str, ...]]:
    """The roles that must be ready before each role starts.

    A main role that is the run's own `train` or `command` comes after all services that do not wait for it.
    """
    waits = {name: role.after for name, role in run.roles.items()}
    if main_name(run) not in run.roles:
        waiting = {MAIN}
        while more := {name for name, after in waits.items() if waiting.intersection(after)} - waiting:
            waiting |= more
        waits = {MAIN: tuple(name for name in waits if name not in waiting), **waits}
    return waits


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
    roles = {name: replace(role, env={**plain(run.env), **role.env}) for name, role in run.roles.items()}
    run = replace(run, roles=roles)
    if not mains:
        return run, []
    main = roles[mains[0]]
    given = (field.name for field in fields(main) if f"roles.{mains[0]}.{key_of(field)}" in marks)
    own = {field: getattr(main, field) for field in given if field in OF_MAIN}
    return replace(run, **{**own, "nodes": main.nodes, "env": {**run.env, **main.env}}), []


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
