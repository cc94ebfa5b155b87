"""A login node: its address, its kind of connection, and its Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.base.errors import SiteError

if TYPE_CHECKING:  # `status` needs no site
    from orchestrator.spec.site import Site

PYTHON = "python3"


@dataclass(frozen=True)
class LoginHost:
    """`address` as ssh takes it ([user@]name); `connect` is 'fabric', 'openssh', or None to choose the fitting one."""

    address: str
    connect: str | None = None
    python: str = PYTHON


class Unanswered(SiteError):
    """There is no usable answer. The request may have been carried out."""


class BadAnswer(Unanswered):
    """The login node sent something that torusrun does not send, or too much of it. A repetition does not help."""


class LinkLost(Unanswered):
    """The link broke, or was silent for too long. The request may be repeated.

    `ended_with` is the exit code of the program on the other side, if it has ended.
    """

    def __init__(self, text: str, ended_with: int | None = None) -> None:
        super().__init__(text)
        self.ended_with = ended_with


class HostRefused(SiteError):
    """There is no connection and a repetition does not help: an unknown key, no permission, no Python."""


def of(site: Site) -> LoginHost | None:
    """The login node of a site; None for a site of this machine."""
    return LoginHost(site.host, site.connect, site.python or PYTHON) if site.host else None
