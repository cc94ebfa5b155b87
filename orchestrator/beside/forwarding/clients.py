"""Who opened a connection to a port of this machine, by the kernel's list of connections."""

from __future__ import annotations

import os
import socket
import struct
from ipaddress import IPv4Address
from pathlib import Path

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))  # a client may use IPv6 with an address of IPv4
LOCAL, REMOTE, USER, INODE = 1, 2, 7, 9  # fields of a line (linux/net/ipv4/tcp_ipv4.c)
GONE = "0"  # the inode of a socket without a process


def is_strange(link: socket.socket) -> bool:
    """Whether an accepted IPv4 connection is of another user of this machine, or its client is gone.

    Of clients on other machines nothing is known: False, as on a system without the list. Raises OSError if the list
    cannot be read.
    """
    theirs, mine = _coded(link.getpeername()), _coded(link.getsockname())
    try:
        lines = [line.split() for table in TABLES for line in table.read_text().splitlines()]
    except FileNotFoundError:
        return False
    for words in lines:
        if words[LOCAL].endswith(theirs) and words[REMOTE].endswith(mine):
            return words[USER] != str(os.geteuid()) or words[INODE] == GONE
    return IPv4Address(link.getpeername()[0]).is_loopback


def _coded(address: tuple[str, int]) -> str:
    """An address and port as the kernel writes them: '0100007F:1770' for 127.0.0.1, port 6000, on a PC."""
    (number,) = struct.unpack("=I", socket.inet_aton(address[0]))
    return f"{number:08X}:{address[1]:04X}"
