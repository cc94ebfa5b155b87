"""The programs of a dry run: where each role is, and what its first rank starts with which variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from torusrun.orchestrator.job.ranks.roles import with_places
from torusrun.orchestrator.job.start.launch_order import LaunchOrder, Rank
from torusrun.orchestrator.place.placement.mapping import Placement
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.orchestrator.run.program.what_runs import Program, facts


@dataclass(frozen=True)
class RoleProgram:
    """What a role's first rank starts; `environment` has the variables in addition to those of the job."""

    role: str  # '' in a run without roles
    hosts: tuple[str, ...]
    program: Program
    environment: Mapping[str, str]
    container: list[str] | None  # the command that starts it in an image


def started(
    attempt: Attempt,
    order: LaunchOrder,
    placement: Placement,
    hidden: Mapping[str, str],
    contained: Callable[[Rank, Program], list[str] | None],
) -> Iterator[RoleProgram]:
    """What the first rank of each role starts, the main role's first; of a run without roles, what rank 0 starts.

    Words in <> stand for what only the job knows; `hidden` has them for secret variables.
    """
    hosts = {
        role.name: tuple(dict.fromkeys(slot.host for slot in placement.of_role(role.name))) for role in order.roles
    }
    at = {name: f"<address of {own[0].strip('<>')}>" for name, own in hosts.items()}
    places = {name: facts(own, at[name], f"<port of {name}>") for name, own in hosts.items()}
    for role in order.roles:
        rank = Rank(placement.of_role(role.name)[0].rank, attempt, order, placement)
        meets = (at[role.name], "<free port>") if role.program.rendezvous else None
        own = replace(role.program, environment=rank.variables(meets, {"PATH": "$PATH"}))
        program = with_places(own, role.name, places) if role.name else own
        variables = {**program.environment, **hidden}
        yield RoleProgram(role.name, hosts[role.name], program, variables, contained(rank, program))
