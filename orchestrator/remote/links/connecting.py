"""The connection to a login node: through fabric, or through the ssh program where a connection of it can be shared."""

from __future__ import annotations

import logging

from orchestrator.base import process
from orchestrator.base.environment import which
from orchestrator.base.errors import SiteError
from orchestrator.remote.links.channel import CONNECT_S, Channel
from orchestrator.remote.links.host import LoginHost

NO_ONE = "none"


def connect(host: LoginHost, command: str, *, asks: bool = True) -> Channel:
    """Run `command` on the login node; unless `asks`, the user is not asked for a password or the like.

    Raises LinkLost where nobody answers, HostRefused where nobody may go on.
    """
    if (host.connect or _fitting(host)) == "openssh":
        from orchestrator.remote.links.openssh import OpenSSH

        return OpenSSH(host, command, asks=asks)
    from orchestrator.remote.links.through_fabric import ThroughFabric

    logging.getLogger("paramiko").addHandler(logging.NullHandler())  # else it prints its errors, which are raised too
    return ThroughFabric(host, command)


def _fitting(host: LoginHost) -> str:
    """'openssh' where the user's ssh configuration shares connections to this host: fabric cannot use them."""
    if not which("ssh"):
        return "fabric"
    try:
        said = process.run(["ssh", "-G", "--", host.address], timeout_s=CONNECT_S)
    except SiteError:
        return "fabric"
    options = dict(line.split(" ", 1) for line in said.stdout.splitlines() if " " in line)
    return "openssh" if options.get("controlpath", NO_ONE) != NO_ONE else "fabric"
