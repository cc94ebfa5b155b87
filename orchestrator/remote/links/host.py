"""A login node: its address, its kind of connection, its Python; limits of time; errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.errors import SiteError

if TYPE_CHECKING:  # `status` needs no site
    from torusrun.orchestrator.keys.site import Site

PYTHON = "python3"
SILENCE_S = 20.0  # the login node answers at least every 2 s, so a link is broken after such a silence
CONNECT_S = 10.0
LOGIN_S = 120.0  # for a user who types a second factor


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


def of(site: Site) -> LoginHost:
    """The login node of a site that has one."""
    assert site.host
    return LoginHost(site.host, site.connect, site.python or PYTHON)
