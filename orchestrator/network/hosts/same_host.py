"""Whether two names mean one host."""

from __future__ import annotations


def same_host(a: str, b: str) -> bool:
    """Whether two names mean one host: equal, or equal up to a domain that only one of them has."""
    if "." in a and "." in b:
        return a == b
    return a.partition(".")[0] == b.partition(".")[0]
