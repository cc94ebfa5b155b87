"""How often the hosts of an attempt give signs of life."""

from __future__ import annotations

HOST_PULSE_S = 2.0  # at least, between the signs of life that one rank of each host gives
HOSTS_PER_S = 50  # that give one


def host_pulse_s(hosts: int) -> float:
    """The seconds between two signs of life of each of some hosts."""
    return max(HOST_PULSE_S, hosts / HOSTS_PER_S)
