"""A laptop beside a login node, for the tests of remote runs."""

from __future__ import annotations

import pwd
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..cluster.folder import mount_checkout, mounts_below
from ..cluster.processes import run, taken
from ..cluster.settings import REPO
from .laptop import LOGIN_ADDRESS, Laptop
from .sshd import LoginNode, end_earlier

FOLDER = Path("/srv/torusrun-login")
USER = "lablogin"
LOCK = Path("/run/torusrun-laptop.lock")  # there is one laptop on a machine


@contextmanager
def alone() -> Iterator[None]:
    """Within it no other run has the laptop of this machine. Raises Busy if one has it."""
    with taken(LOCK):
        yield


def make_user(folder: Path = FOLDER) -> Path:
    """Make the folder anew, with the user of a login node whose scheduler is the machine itself; returns the home."""
    end_earlier(folder)
    _remove(folder)
    folder.mkdir(mode=0o755)
    home = folder / "home"
    try:
        if pwd.getpwnam(USER).pw_dir != str(home):
            run(["usermod", "--home", str(home), USER])
    except KeyError:
        run(["useradd", "--no-create-home", "--home-dir", str(home), "--shell", "/bin/bash", USER])
    home.mkdir(mode=0o755, parents=True)
    shutil.chown(home, USER, USER)
    return home


def checkout(folder: Path = FOLDER) -> Path:
    """The folder in which both users read the checkout, even if it is below a folder closed to others."""
    source = folder / "src"
    source.mkdir()
    mount_checkout(REPO, source)
    return source


def _remove(folder: Path) -> None:
    for point in mounts_below(folder):
        run(["umount", "--lazy", point])
    shutil.rmtree(folder, ignore_errors=True)


class Away:
    """A laptop and a login node: the laptop knows the node's key, and the node accepts the laptop's key."""

    def __init__(self, folder: Path, user: str, python: str, source: Path) -> None:
        self.folder, self.user = folder, user
        self.laptop = Laptop(folder, python, source)
        self.login = LoginNode(folder / "sshd", user, LOGIN_ADDRESS)

    def start(self) -> None:
        self.laptop.start()
        self.login.start()
        self.login.admit(self.laptop.public_key)
        self.trust(self.login)

    def trust(self, *nodes: LoginNode) -> None:
        """Let the laptop know the keys of only these hosts."""
        self.laptop.put(".ssh/known_hosts", "".join(node.known_as for node in nodes))

    def stop(self) -> None:
        self.login.stop()
        self.laptop.stop()
        _remove(self.folder)
