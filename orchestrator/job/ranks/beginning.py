"""Starts the program of a rank, on the host or in its image, and waits for what it leaves behind.

The meeting point of a user's program is an address and a free port of rank 0's host, recorded in the attempt. Rank 0's
wrapper keeps the port bound, without listening, as long as its program lives. So the kernel gives it to no process that
asks for any free port. The program's own store can listen on it, since all of PyTorch's bind with SO_REUSEADDR. So can
another user of the host who names this port with that option: docs/concepts/security.md.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import read_object, required, write_json
from torusrun.orchestrator.job.start.launch_order import Rank, secrets_of
from torusrun.orchestrator.run.folder.run_folder import Attempt

OF_TORCHRUN = ("TORCHELASTIC_", "PET_")  # if torchrun started torusrun itself: they would mislead the program
LONGEST_S = 600.0  # rank 0 may copy an image first
LOOK_S = 0.1


def begin(rank: Rank, lock: int, log: IO[bytes], held: contextlib.ExitStack) -> subprocess.Popen[bytes]:
    """Start the program of `rank`, which writes to `log` and keeps the descriptor `lock`.

    What it needs stays until `held` is closed, which waits for the process that writes a checkpoint.
    """
    program, container = rank.order.program, rank.order.container
    left = LeftBehind()
    kept = (lock, left.kept)
    command, environment = _command(rank, kept, held)
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
    held.callback(left.wait, rank.order.kill_after_s)
    return child


def _command(rank: Rank, kept: Sequence[int], held: contextlib.ExitStack) -> tuple[list[str], dict[str, str]]:
    """(command, environment) by which this rank starts its program, on the host or in its image.

    `kept` are the descriptors that a process of the program may keep. Rank 0 first opens the meeting point, if the
    program has one.
    """
    program, meets, inherited = rank.order.program, None, dict(os.environ)
    if program.rendezvous:
        if rank.number == 0:
            held.enter_context(open_meeting(rank.attempt, rank.order.interface))
        meets = meeting(rank.attempt)
        inherited = {name: value for name, value in inherited.items() if not name.startswith(OF_TORCHRUN)}
    own = {**rank.variables(meets, os.environ), "TORUSRUN_KEEP": ",".join(map(str, kept))}
    secret = secrets_of(rank.attempt, rank.order.secrets)
    if not rank.order.container:
        return list(program.argv), {**inherited, **own, **secret.values}
    from torusrun.orchestrator.job.image.contained import contained

    return contained(rank.order.container, program.argv, own, inherited, rank.attempt, rank.number, held, secret)


def _of_pmi(environment: Mapping[str, str]) -> list[int]:
    """The descriptor by which an MPICH program communicates with Hydra, which passed it to this wrapper."""
    number = environment.get("PMI_FD", "")
    return [int(number)] if number.isdigit() else []


class LeftBehind:
    """The processes that hold the descriptor `kept`, apart from this one until `begun`: the writer of a checkpoint.

    Some schedulers kill the processes of a rank that its wrapper leaves behind. The write end of a pipe is open in the
    program and in the processes that inherit it, so its read end ends with the last of them.
    """

    def __init__(self) -> None:
        self._end, self.kept = os.pipe()

    def begun(self) -> None:
        """Close this process's own descriptor, once the program has inherited it."""
        os.close(self.kept)

    def wait(self, most_s: float) -> bool:
        """Wait until none of them is left, once; False if one still lives after `most_s`."""
        waiting = select.poll()  # select takes no descriptor above 1023
        waiting.register(self._end, select.POLLIN)
        try:
            return bool(waiting.poll(math.ceil(most_s * 1000)))
        finally:
            os.close(self._end)


def open_meeting(attempt: Attempt, interface: str | None) -> socket.socket:
    """As rank 0, choose and record the address and the port. The returned socket holds the port until it is closed.

    Raises SiteError if the interface has no address, or no port is free.
    """
    from torusrun.training.meeting.addresses import RendezvousError, address_of_host  # most ranks need none

    try:
        family, address = address_of_host(interface)
    except RendezvousError as error:
        raise SiteError(str(error)) from None
    held = socket.socket(family, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held.bind((address, 0))
    except OSError as error:
        held.close()
        raise SiteError(f"{address}: no port is free on {socket.gethostname()}: {error.strerror}") from None
    write_json(attempt.rendezvous, {"address": address, "port": held.getsockname()[1]}, secret=True)
    return held


def meeting(attempt: Attempt) -> tuple[str, int]:
    """(address, port) that rank 0 recorded, for which this waits. Raises SiteError if it waits in vain."""
    until_s = time.monotonic() + LONGEST_S
    while (record := read_object(attempt.rendezvous)) is None:
        if time.monotonic() > until_s:
            raise SiteError(f"{attempt.rendezvous}: rank 0 has not said where the ranks meet")
        time.sleep(LOOK_S)
    return required(attempt.rendezvous, record, "address", str), required(attempt.rendezvous, record, "port", int)
