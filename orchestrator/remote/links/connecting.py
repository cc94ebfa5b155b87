"""The connection to a login node: through fabric, or through the ssh program where a connection of it can be shared."""

from __future__ import annotations

import os
import shutil

from orchestrator import process
from orchestrator.errors import SiteError
from orchestrator.remote.links.channel import CONNECT_S, Channel
from orchestrator.remote.links.host import LoginHost

NO_ONE = "none"


def connect(host: LoginHost, command: str) -> Channel:
    """Run `command` on the login node. Raises LinkLost where nobody answers, HostRefused where nobody may go on."""
    if (host.connect or _fitting(host)) == "openssh":
        from orchestrator.remote.links.openssh import OpenSSH

        return OpenSSH(host, command)
    from orchestrator.remote.links.through_fabric import ThroughFabric

    return ThroughFabric(host, command)


def _fitting(host: LoginHost) -> str:
    """'openssh' where the user's ssh configuration shares connections to this host: fabric cannot use them."""
    if not shutil.which("ssh", path=os.environ.get("PATH")):
        return "fabric"
    try:
        said = process.run(["ssh", "-G", "--", host.address], timeout_s=CONNECT_S)
    except SiteError:
        return "fabric"
    options = dict(line.split(" ", 1) for line in said.stdout.splitlines() if " " in line)
    return "openssh" if options.get("controlpath", NO_ONE) != NO_ONE else "fabric"
