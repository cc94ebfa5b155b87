"""The address at which other hosts reach this host, and the socket of rank 0 at this address alone."""

from __future__ import annotations

import fcntl
import socket
import struct
from ipaddress import ip_address

SIOCGIFADDR = 0x8915  # linux/sockios.h
ANY_OTHER = ("192.0.2.1", 9)  # RFC 5737 reserves this address for documentation: no host has it
NAME_INTERFACE = "name the network interface that the nodes share as `interface`"


class RendezvousError(RuntimeError):
    """The ranks did not meet, or a process was not a rank of this attempt; the message gives the details."""


def address_of_host(interface: str | None) -> tuple[socket.AddressFamily, str]:
    """The interface's address; without an interface, the first address of this host's name. Raises RendezvousError."""
    return (socket.AF_INET, interface_address(interface)) if interface else _host_address()


def listen(interface: str | None) -> socket.socket:
    """A socket on a free port of the interface's address; without an interface, of the host name's first address.

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


def interface_address(interface: str) -> str:
    """The IPv4 address of a network interface. Raises RendezvousError if it has none."""
    request = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, SIOCGIFADDR, request)
        except OSError as error:
            known = ", ".join(name for _, name in socket.if_nameindex())
            reason = f"network interface {interface!r} has no IPv4 address ({error.strerror})"
            raise RendezvousError(f"{reason}; {socket.gethostname()} has {known}") from error
    return socket.inet_ntoa(answer[20:24])


def _host_address() -> tuple[socket.AddressFamily, str]:
    """The first address of the host's name that other hosts can use; else the source address of packets to them.

    Debian gives a host's own name the address 127.0.1.1, which on every other host means that host itself.
    """
    name = socket.gethostname()
    try:
        known = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise RendezvousError(f"the name of this host, {name}, has no address: {error}; {NAME_INTERFACE}") from error
    addresses = [(family, str(address[0])) for family, _, _, _, address in known]
    outward = [(family, text) for family, text in addresses if not ip_address(text.partition("%")[0]).is_loopback]
    return (outward or _towards_others() or addresses)[0]


def _towards_others() -> list[tuple[socket.AddressFamily, str]]:
    """The source address of this host's packets to others; none if it has no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(ANY_OTHER)  # sends nothing
        except OSError:
            return []
        return [(socket.AF_INET, probe.getsockname()[0])]
