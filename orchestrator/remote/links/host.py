"""A login node: its address, how it is connected to, and its Python."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.base.errors import SiteError
from orchestrator.spec.site import Site

PYTHON = "python3"


@dataclass(frozen=True)
class LoginHost:
    """`address` as ssh takes it ([user@]name); `connect` is 'fabric', 'openssh', or None for whichever fits."""

    address: str
    connect: str | None = None
    python: str = PYTHON


class Unanswered(SiteError):
    """There is no answer that can be used. What was asked for may have happened."""


class BadAnswer(Unanswered):
    """The login node sent something that torusrun does not send, or too much of it. Asking again does not help."""


class LinkLost(Unanswered):
    """The link broke, or nothing came for too long. What was asked for may be asked again.

    `ended_with` is the exit code of the program on the other side where it has ended.
    """

    def __init__(self, text: str, ended_with: int | None = None) -> None:
        super().__init__(text)
        self.ended_with = ended_with


class HostRefused(SiteError):
    """There is no connection and trying again does not help: an unknown key, no permission, no Python."""


def of(site: Site) -> LoginHost | None:
    """The login node of a site; None for a site of this machine."""
    return LoginHost(site.host, site.connect, site.python or PYTHON) if site.host else None
