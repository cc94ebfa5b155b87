"""An sshd of the user's own for one connection, on the host of a rank: without root, a port, or a file of the system.

`orchestrator.beside.ssh_server KEY` starts it on its standard streams, as pieces (leading.py). It lets in its user, by
the key KEY alone. The first piece is the public key of the host, made for this connection, or says why there is none.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import tempfile
import threading
from pathlib import Path

from torusrun.orchestrator.base import private, process, signals
from torusrun.orchestrator.base.environment import which
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.listening import joined
from torusrun.orchestrator.base.process import STANDARD, Streams
from torusrun.orchestrator.beside.leading import Pieces

KIND = "ssh-ed25519"
KEY_S = 60.0  # to make a key on a busy host
OF_SYSTEM = "/usr/sbin:/usr/local/sbin:/sbin"  # where sshd is, outside of a user's PATH
CONFIG = """HostKey {folder}/host
AuthorizedKeysFile {folder}/allowed
StrictModes no
PidFile none
UsePAM no
AuthenticationMethods publickey
PasswordAuthentication no
X11Forwarding no
PermitTunnel no
PermitUserEnvironment no
LogLevel ERROR
Subsystem sftp internal-sftp
"""  # StrictModes would refuse /tmp above the folder, which is private


def made_key(file: Path) -> Path:
    """A private key, its public key beside it as NAME.pub; made if it is missing. Raises SiteError."""
    if not file.with_suffix(".pub").exists():
        file.unlink(missing_ok=True)
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "torusrun", "-f", str(file)]
        process.run(words, timeout_s=KEY_S).check(f"{file}: this key cannot be made")
    return file


def started(folder: Path, allowed: str) -> tuple[socket.socket, str]:
    """(an sshd's end of a connection, the host's public key), with its files in `folder`. Raises SiteError."""
    places = f"{os.environ.get('PATH', '')}{os.pathsep}{OF_SYSTEM}"
    if not (sshd := which("sshd", environment={"PATH": places})):
        raise SiteError("there is no sshd: its administrator can install openssh-server, which need not run")
    public = made_key(folder / "host").with_suffix(".pub").read_text().strip()
    private.write_bytes(folder / "allowed", f"{allowed}\n".encode())
    private.write_bytes(folder / "config", CONFIG.format(folder=folder).encode())
    ours, its = socket.socketpair()

    def serve() -> None:
        with its:
            process.join([sshd, "-i", "-e", "-f", folder / "config"], Streams(its.fileno(), its.fileno()))

    threading.Thread(target=serve, daemon=True).start()
    return ours, public


def main() -> None:
    user = Pieces(STANDARD)
    user.begin()
    with signals.in_order(), tempfile.TemporaryDirectory(prefix="torusrun-ssh-") as folder:
        try:
            link, public = started(Path(folder), sys.argv[1])
        except (OSError, SiteError) as error:
            return user.sendall(str(error).encode())
        user.sendall(public.encode())
        with contextlib.suppress(OSError):  # the client or the sshd is gone
            joined(link, user)
    os._exit(0)  # a thread may still wait for the user's side


if __name__ == "__main__":
    main()
