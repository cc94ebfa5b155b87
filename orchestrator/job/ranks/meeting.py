"""The meeting point of a program: an address and a free port of its first rank's host, recorded in the attempt.

That rank's wrapper keeps the port bound, without listening, as long as its program lives. So the kernel gives it to no
process that asks for any free port. The program's own store can listen on it, since all of PyTorch's bind with
SO_REUSEADDR. So can another user of the host who names this port with that option: docs/concepts/security.md.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import read_object, required, write_json
from torusrun.orchestrator.run.folder.run_folder import Attempt

LONGEST_S = 600.0  # the first rank may copy an image first
LOOK_S = 0.1


def meeting_of(attempt: Attempt, service: str = "") -> Path:
    """The record of where the ranks of a service meet, or those of the main role for ''."""
    return attempt.role_meeting(service) if service else attempt.rendezvous


def open_meeting(record: Path, interface: str | None) -> socket.socket:
    """Choose an address and a port, and record them. The returned socket holds the port until it is closed.

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
    write_json(record, {"address": address, "port": held.getsockname()[1]}, secret=True)
    return held


def meeting(record: Path) -> tuple[str, int]:
    """(address, port) in this record, for which this waits. Raises SiteError if it waits in vain."""
    until_s = time.monotonic() + LONGEST_S
    while (kept := read_object(record)) is None:
        if time.monotonic() > until_s:
            raise SiteError(f"{record}: the first rank has not said where the ranks meet")
        time.sleep(LOOK_S)
    return required(record, kept, "address", str), required(record, kept, "port", int)
