"""A real sshd for one user, with its own keys."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from ..cluster.network import listens
from ..cluster.packages import install_missing
from ..cluster.processes import LabError, children, kill, run, tail, wait_until

CONFIG = """Port {port}
ListenAddress {address}
HostKey {folder}/host_key
PidFile {folder}/sshd.pid
AuthorizedKeysFile {folder}/authorized_keys
AllowUsers {user}
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
AllowTcpForwarding yes
ClientAliveInterval 5
"""


class LoginNode:
    """`listen` and `port` are its address; its user logs in with the key given to `admit`."""

    def __init__(self, folder: Path, user: str, listen: str, port: int = 22) -> None:
        self.folder, self.user, self.listen, self.port = folder, user, listen, port
        self._daemon: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        install_missing({"sshd": "openssh-server"})
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        Path("/run/sshd").mkdir(exist_ok=True)
        run(["usermod", "--password", "*", self.user])  # "!" would lock it for keys too
        if not (self.folder / "host_key").exists():
            self.make_key()
        (self.folder / "authorized_keys").touch()
        self._write(CONFIG)
        program = shutil.which("sshd", path="/usr/sbin:/sbin") or "sshd"
        with (self.folder / "sshd.log").open("ab") as log:
            self._daemon = subprocess.Popen(
                [program, "-D", "-e", "-f", str(self.folder / "config")], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env={"PATH": os.defpath}, start_new_session=True,
            )  # fmt: skip
        wait_until("the start of sshd", self._listens, 120, self.folder / "sshd.log")

    def _listens(self) -> bool:
        if self._daemon is None or self._daemon.poll() is not None:
            raise LabError(f"sshd ended at once{tail(self.folder / 'sshd.log')}")
        return listens(self.listen, self.port)

    def _write(self, config: str) -> None:
        text = config.format(port=self.port, address=self.listen, folder=self.folder, user=self.user)
        (self.folder / "config").write_text(text)

    def make_key(self) -> None:
        """Make a new host key, used from the next start on."""
        for file in self.folder.glob("host_key*"):
            file.unlink()
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / "host_key")])

    @property
    def public_key(self) -> str:
        return " ".join((self.folder / "host_key.pub").read_text().split()[:2])

    @property
    def known_as(self) -> str:
        """The node's line in a file of known hosts."""
        name = self.listen if self.port == 22 else f"[{self.listen}]:{self.port}"
        return f"{name} {self.public_key}\n"

    @property
    def fingerprint(self) -> str:
        return run(["ssh-keygen", "-lf", str(self.folder / "host_key.pub")]).stdout.split()[1]

    def admit(self, public_key: str) -> None:
        with (self.folder / "authorized_keys").open("a") as file:
            file.write(f"{public_key}\n")

    def connections(self) -> int:
        """The number of logins so far."""
        return (self.folder / "sshd.log").read_text().count("Accepted publickey")

    def drop(self) -> None:
        """End all connections, as a firewall does after it has dropped their state."""
        if self._daemon:
            for session in children(self._daemon.pid):
                for process in (*children(session), session):
                    kill(process)

    def stop(self) -> None:
        if self._daemon:
            self.drop()
            self._daemon.terminate()
            self._daemon.wait(10)


def end_earlier(folder: Path) -> None:
    """End every sshd of a killed session of tests with its files below this folder."""
    for pid in folder.glob("*/sshd.pid"):
        number = int(pid.read_text())
        command = Path(f"/proc/{number}/cmdline")
        if command.exists() and str(folder).encode() in command.read_bytes():
            kill(number)
