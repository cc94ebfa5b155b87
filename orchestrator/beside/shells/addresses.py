"""The addresses by which a program on another host reaches this host."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path

from torusrun.training.meeting.addresses import RendezvousError, interface_address

HERE = "127.0.0.1"
BOOT = Path("/proc/sys/kernel/random/boot_id")


def addresses() -> tuple[str, ...]:
    """The IPv4 address of every interface of this host, without loopback."""
    own = []
    for _, name in socket.if_nameindex():
        with contextlib.suppress(RendezvousError):
            own.append(interface_address(name))
    return tuple(address for address in dict.fromkeys(own) if not ip_address(address).is_loopback)


def network() -> str:
    """The name of this network namespace. No other namespace has it, here or on another machine."""
    return f"{BOOT.read_text().strip()} {os.stat('/proc/self/ns/net').st_ino}"


def ways(theirs: Iterable[str], their_network: str) -> tuple[str, ...]:
    """The addresses of `theirs` that reach the other machine from here, and no other machine.

    To this machine it is loopback: the kernel lets no other program listen on a port that is bound on all addresses.
    To another machine, an address that this machine has too (172.17.0.1 of Docker, say) is left out: it reaches a
    program on this machine, which may be another user's.
    """
    if their_network == network():
        return (HERE,)
    return tuple(address for address in theirs if not _is_mine(address))


def _is_mine(address: str) -> bool:
    """Whether this host has the IPv4 address; all of 127.0.0.0/8 belongs to every host."""
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
