"""Starts the program of a rank, on the host or in its image, and waits for what it leaves behind."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from torusrun.orchestrator.base import process
from torusrun.orchestrator.job.ranks.meeting import meeting, meeting_of, open_meeting
from torusrun.orchestrator.job.start.launch_order import Rank, secrets_of

if TYPE_CHECKING:
    from torusrun.orchestrator.job.ranks.roles import Roles

OF_TORCHRUN = ("TORCHELASTIC_", "PET_")  # if torchrun started torusrun itself: they would mislead the program


def begin(
    rank: Rank,
    lock: int,
    log: IO[bytes],
    held: contextlib.ExitStack,
    over: contextlib.ExitStack,
    roles: Roles | None = None,
) -> subprocess.Popen[bytes]:
    """Start the program of `rank`, which writes to `log` and keeps the descriptor `lock`.

    What it needs stays until `held` is closed. Closing `over` waits for the process that writes a checkpoint.
    """
    program, container = rank.role.program, rank.container
    left = LeftBehind()
    kept = (lock, left.kept)
    command, environment = _command(rank, kept, held, roles)
    if roles:
        roles.free_port()
    if not program.own_group:  # mpirun also sends these to the program, which they would kill
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
    child = process.start(
        command,
        environment=environment,
        output=log,
        cwd=Path(program.directory) if program.directory and not container else None,
        keep=[*kept, *_of_pmi(environment)],
        own_group=program.own_group,
        parent_death=signal.SIGKILL,
    )
    left.begun()
    over.callback(left.wait, rank.order.kill_after_s)
    return child


def _command(
    rank: Rank, kept: Sequence[int], held: contextlib.ExitStack, roles: Roles | None
) -> tuple[list[str], dict[str, str]]:
    """(command, environment) by which this rank starts its program, on the host or in its image.

    `kept` are the descriptors that a process of the program may keep. The first rank of a role first opens the meeting
    point, if the program needs it.
    """
    program, meets, inherited = rank.role.program, None, dict(os.environ)
    if program.rendezvous:
        record = meeting_of(rank.attempt, rank.role.name if rank.role.service else "")
        if rank.leads and not record.exists():  # it exists when a service is started again
            held.enter_context(open_meeting(record, rank.order.interface))
        meets = meeting(record)
        inherited = {name: value for name, value in inherited.items() if not name.startswith(OF_TORCHRUN)}
    own = {**rank.variables(meets, os.environ), "TORUSRUN_KEEP": ",".join(map(str, kept))}
    if roles:
        program = roles.filled(replace(program, environment=own))
        own = {**program.environment}
    secret = secrets_of(rank.attempt, rank.order.secrets)
    if not (container := rank.container):
        return list(program.argv), {**inherited, **own, **secret.values}
    from torusrun.orchestrator.job.image.contained import contained

    return contained(container, program.argv, own, inherited, rank.attempt, rank.number, secret)


def _of_pmi(environment: Mapping[str, str]) -> list[int]:
    """The descriptor by which an MPICH program communicates with Hydra, which passed it to this wrapper."""
    number = environment.get("PMI_FD", "")
    return [int(number)] if number.isdigit() else []


class LeftBehind:
    """The processes that hold the descriptor `kept`, apart from this process until `begun`: the writer of a checkpoint.

    Some schedulers kill the processes of a rank that its wrapper leaves behind. The write end of a pipe is open in the
    program and in the processes that inherit it, so its read end ends with the last of them.
    """

    def __init__(self) -> None:
        self._end, self.kept = os.pipe()

    def begun(self) -> None:
        """Close this process's own descriptor, once the program has inherited it."""
        os.close(self.kept)

    def wait(self, most_s: float) -> bool:
        """Wait, once, until all of them have ended; False if any lives after `most_s`."""
        waiting = select.poll()  # select takes no descriptor above 1023
        waiting.register(self._end, select.POLLIN)
        try:
            return bool(waiting.poll(math.ceil(most_s * 1000)))
        finally:
            os.close(self._end)
