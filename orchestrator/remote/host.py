"""A login node: its address, the program that connects to it, and the errors of a connection."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.environment import which
from torusrun.orchestrator.base.errors import SiteError, UserError

if TYPE_CHECKING:  # `status` needs no site
    from torusrun.orchestrator.keys.site import Site

PYTHON = "python3"
CONNECT_S = 10.0
ALIVE_S, LOST_AFTER = 10, 2  # a link is broken when so many signs of life, this far apart, got no answer
LOST, REFUSED, UNREACHED = 255, 254, 253  # exit codes: of ssh for its failures; of through_fabric.py for some of them


@dataclass(frozen=True)
class LoginHost:
    """`address` as ssh takes it ([user@]name); `connect` is 'fabric', 'openssh', or None: ssh if it is on PATH."""

    address: str
    connect: str | None = None
    python: str = PYTHON

    def argv(self, command: str, *, terminal: bool = False, asks: bool = True) -> list[str]:
        """The program that runs `command` on the host with its own streams. Without `asks` it asks the user nothing."""
        if not self.by_ssh:
            if terminal:
                raise UserError(f"{self.address}: only `ssh` has a terminal there, and fabric connects to this site")
            return process.module(sys.executable, "torusrun.orchestrator.remote.through_fabric", self.address, command)
        return ["ssh", "-tt" if terminal else "-T", *_ssh_options(asks), "--", self.address, command]

    def tunnel(self, socket: str, port: int) -> list[str]:
        """The `ssh` that leads a new Unix socket of this machine to a port of the login node's loopback."""
        leads = ["-o", "ExitOnForwardFailure=yes", "-L", f"{socket}:127.0.0.1:{port}"]
        return ["ssh", "-N", "-T", *leads, *_ssh_options(asks=True), "--", self.address]

    @property
    def by_ssh(self) -> bool:
        """Whether the user's own `ssh` connects, which can share a connection (ControlMaster)."""
        return self.connect == "openssh" or (self.connect is None and which("ssh") is not None)


class Unanswered(SiteError):
    """No usable answer arrived. The request may have been carried out."""


class BadAnswer(Unanswered):
    """The login node sent something that torusrun does not send, or too much of it. A repetition does not help."""


class LinkLost(Unanswered):
    """The link broke, or was silent for too long. The request may be repeated. `begun`: it had been open."""

    def __init__(self, text: str, *, begun: bool = False) -> None:
        super().__init__(text)
        self.begun = begun


class Unreached(LinkLost):
    """No connection was made, so no request was sent."""


class HostRefused(SiteError):
    """No connection is possible, and a repetition does not help: an unknown key, no permission, no Python."""


def of(site: Site) -> LoginHost:
    """The login node of a site that has one."""
    assert site.host
    return LoginHost(site.host, site.connect, site.python or PYTHON)


def _ssh_options(asks: bool) -> list[str]:
    batch = [] if asks and sys.stdin and sys.stdin.isatty() else ["-o", "BatchMode=yes"]
    alive = ["-o", f"ServerAliveInterval={ALIVE_S}", "-o", f"ServerAliveCountMax={LOST_AFTER}"]
    return ["-o", "StrictHostKeyChecking=yes", "-o", f"ConnectTimeout={CONNECT_S:.0f}", *alive, *batch]
