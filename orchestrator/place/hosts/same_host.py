"""Whether two names mean one host."""

from __future__ import annotations

from collections.abc import Collection, Iterable


def same_host(a: str, b: str) -> bool:
    """Whether two names mean one host: equal but for capitals, or up to a domain that only one of them has."""
    a, b = a.lower(), b.lower()
    if "." in a and "." in b:
        return a == b
    return a.partition(".")[0] == b.partition(".")[0]


def without(hosts: Iterable[str], others: Collection[str]) -> list[str]:
    """The hosts that are none of `others`, with or without a domain."""
    return [host for host in hosts if not any(same_host(host, other) for other in others)]
