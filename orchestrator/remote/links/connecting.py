"""The connection to a login node: through fabric, or through the ssh program if that can share a connection."""

from __future__ import annotations

import logging
from typing import Protocol

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.process import Streams
from torusrun.orchestrator.remote.links.host import CONNECT_S, LoginHost


class Channel(Protocol):
    """The standard streams of one command on the login node."""

    def send(self, data: bytes) -> None:
        """Send bytes. Raises LinkLost if the link does not take them within SILENCE_S."""

    def receive(self) -> bytes:
        """The next bytes, at least one. Raises LinkLost at the end, and after SILENCE_S without bytes."""

    def interact(self, command: str, *, terminal: bool, streams: Streams | None = None) -> int:
        """Run another command with `streams`, or those of this program, with `terminal` on a terminal there; its code.

        Raises LinkLost if the link breaks.
        """

    def close(self) -> None: ...


def connect(host: LoginHost, command: str, *, asks: bool = True) -> Channel:
    """Run `command` on the login node. Without `asks`, the user is not asked for a password or a code.

    Raises LinkLost if the host does not answer, HostRefused if it refuses the connection.
    """
    if (host.connect or _fitting(host)) == "openssh":
        from torusrun.orchestrator.remote.links.openssh import OpenSSH

        return OpenSSH(host, command, asks=asks)
    from torusrun.orchestrator.remote.links.through_fabric import ThroughFabric

    logging.getLogger("paramiko").addHandler(logging.NullHandler())  # else it prints its errors, which are raised too
    return ThroughFabric(host, command)


def _fitting(host: LoginHost) -> str:
    """'openssh' if the user's ssh configuration shares connections to this host, which fabric cannot use."""
    try:
        said = process.run(["ssh", "-G", "--", host.address], timeout_s=CONNECT_S)
    except SiteError:  # there is no ssh, for example
        return "fabric"
    shares = any(line.startswith("controlpath ") and line != "controlpath none" for line in said.stdout.splitlines())
    return "openssh" if shares else "fabric"
