"""Connects the ranks of a run's roles: where each role is, when it is ready, and when its ranks may start.

The first rank of a role records the address and port of the role as soon as its wrapper runs. It holds the port until
its program starts. Every wrapper reads these records of all roles, and waits for the roles that its own comes after.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from torusrun.orchestrator.base.errors import SiteError, StoppedBeforeStart
from torusrun.orchestrator.base.json_files import read_object, write_json
from torusrun.orchestrator.job.ranks.meeting import meeting, open_meeting
from torusrun.orchestrator.job.start.launch_order import Rank
from torusrun.orchestrator.keys.role_words import filled
from torusrun.orchestrator.run.folder.records import READY, SILENT
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.orchestrator.run.program.what_runs import Program, facts, role_environment

LOOK_S = 0.2


class Roles:
    """The roles of an attempt, for the wrapper of `rank`. Raises SiteError if a role never records where it is.

    Without `held`, no port is opened: this is for a program beside the rank.
    """

    def __init__(self, rank: Rank, held: contextlib.ExitStack | None) -> None:
        self.rank = rank
        self._port: socket.socket | None = None
        if rank.leads and held:
            self._port = held.enter_context(open_meeting(rank.attempt.role_place(rank.role.name), self.interface))
        self.places = {role.name: self._place(role.name) for role in rank.order.roles}  # the facts of each

    @property
    def interface(self) -> str | None:
        """The network interface of the roles' ports. A job of this machine needs no other host, and runs none."""
        return self.rank.order.interface if self.rank.order.host_variable else "lo"

    def wait(self, asked: Callable[[], bool]) -> None:
        """Wait until the roles that this role comes after are ready. Raises StoppedBeforeStart if `asked` is true."""
        for name in self.rank.role.after:
            while not is_ready(self.rank.attempt, name):
                if asked():
                    raise StoppedBeforeStart
                time.sleep(LOOK_S)

    def free_port(self) -> None:
        """Stop holding the role's port: its program is about to use it."""
        if self._port:
            self._port.close()

    def filled(self, program: Program) -> Program:
        """The program of this rank's role with the places of all roles."""
        return with_places(program, self.rank.role.name, self.places)

    def _place(self, name: str) -> dict[str, str]:
        hosts = (slot.host for slot in self.rank.placement.of_role(name))
        return facts(hosts, *meeting(self.rank.attempt.role_place(name)))


def with_places(program: Program, role: str, places: Mapping[str, Mapping[str, str]]) -> Program:
    """The program of a role with the `facts` of all roles where its arguments and variables have them in braces.

    The facts become variables, too.
    """
    port = places[role]["port"]
    environment = {name: filled(value, places, port) for name, value in program.environment.items()}
    for name, place in places.items():
        environment |= role_environment(name, place)
    return replace(program, argv=tuple(filled(word, places, port) for word in program.argv), environment=environment)


def is_ready(attempt: Attempt, name: str) -> bool:
    """Whether the role has been ready in this attempt."""
    with contextlib.suppress(SiteError):
        return (read_object(attempt.role_state(name)) or {}).get("state") in (READY, SILENT)
    return False


def record(attempt: Attempt, name: str, state: str, **more: str | float) -> None:
    """Record the state of a role for the wrappers of other roles, and for `status`."""
    write_json(attempt.role_state(name), {"state": state, "t": time.time(), **more})
