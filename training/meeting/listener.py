"""The socket at which other ranks find rank 0: on one address of its host, not on all of them."""

from __future__ import annotations

import socket

from training.meeting.addresses import NAME_INTERFACE, RendezvousError, address_of_host


def listen(interface: str | None) -> socket.socket:
    """A socket on a free port of the interface's address only; without one, of the first address of the host's name.

    A store that opens its own socket listens on all addresses of the host. Raises RendezvousError.
    """
    family, address = address_of_host(interface)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.bind((address, 0))
        listener.listen(socket.SOMAXCONN)
    except OSError as error:
        listener.close()
        raise RendezvousError(f"rank 0 cannot listen on {address}: {error.strerror}; {NAME_INTERFACE}") from error
    return listener
