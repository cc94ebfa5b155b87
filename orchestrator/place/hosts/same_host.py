"""Whether two names mean one host, and which of a job's hosts a process is on.

A scheduler's name of a host need not be the host's own: in clouds, with capitals, or in another domain.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Collection, Iterable

LOOKUPS_S = 10.0  # for the addresses of all hosts together


def same_host(a: str, b: str) -> bool:
    """Whether two names mean one host: equal but for capitals, or up to a domain that only one of them has."""
    a, b = a.lower(), b.lower()
    if "." in a and "." in b:
        return a == b
    return a.partition(".")[0] == b.partition(".")[0]


def without(hosts: Iterable[str], others: Collection[str]) -> list[str]:
    """The hosts that are none of `others`, with or without a domain."""
    return [host for host in hosts if not any(same_host(host, other) for other in others)]


def this_host(hosts: Iterable[str], told: str) -> str:
    """This host by its name in `hosts`: as the scheduler `told` it ('' if it did not), by its own name or an address.

    The host's own name if it is none of `hosts`.
    """
    own, known = socket.gethostname(), list(dict.fromkeys(hosts))
    for name in filter(None, (told, own)):
        if named := next((host for host in known if same_host(host, name)), None):
            return named
    until_s = time.monotonic() + LOOKUPS_S
    return next((host for host in known if time.monotonic() < until_s and _has_address_of(host)), own)


def _has_address_of(host: str) -> bool:
    """Whether this machine has an address of that host. Every machine has the loopback addresses, so they do not count.

    Packets to an address of one's own come from this address; to a loopback address, from 127.0.0.1.
    """
    try:
        addresses = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
    except OSError:
        return False
    return any(_source(family, address) == address[0] for family, _, _, _, address in addresses)


def _source(family: int, address: tuple[object, ...]) -> str:
    """The source address of packets to this address; '' without a route."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(address)  # sends nothing
        except OSError:
            return ""
        source = str(probe.getsockname()[0])
        return "" if source.startswith("127.") or source == "::1" else source
