"""A user's own machine: a network namespace with one link to the login node, a home, and a PATH without schedulers."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from pathlib import Path

from tests.unit.terminals import Terminal

from ..cluster.packages import install_missing
from ..cluster.processes import run

NAMESPACE, CABLE, OWN_END = "trlab-laptop", "trlab-laptop", "eth0"  # of the cable; OWN_END is in the namespace
ADDRESS, LOGIN_ADDRESS = "10.78.0.2", "10.78.0.1"
USER = "lablaptop"
PROGRAMS = ("ssh", "ssh-keygen", "ssh-agent", "scp", "git", "env", "sh", "cat")
Said = subprocess.CompletedProcess[str]


class Laptop:
    def __init__(self, folder: Path, python: str, source: Path) -> None:
        """`source` is the folder of its torusrun."""
        self.home, self.python = folder / "laptop", python
        self._bin = folder / "laptop-bin"
        self.env = {
            "HOME": str(self.home),
            "USER": USER,
            "LOGNAME": USER,
            "PATH": str(self._bin),
            "PYTHONPATH": str(source / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "LANG": "C.UTF-8",
            "TERM": "xterm",
        }

    def start(self) -> None:
        install_missing({"ip": "iproute2", "ssh": "openssh-client"})
        self.stop()
        self._make_user()
        lines = [
            f"netns add {NAMESPACE}",
            f"link add {CABLE} type veth peer name {OWN_END} netns {NAMESPACE}",
            f"addr add {LOGIN_ADDRESS}/24 dev {CABLE}",
            f"link set {CABLE} up",
        ]
        run(["ip", "-batch", "-"], stdin="\n".join(lines))
        inside = f"addr add {ADDRESS}/24 dev {OWN_END}\nlink set {OWN_END} up\nlink set lo up\n"
        run(["ip", "-n", NAMESPACE, "-batch", "-"], stdin=inside)
        self._bin.mkdir(exist_ok=True)
        for program in PROGRAMS:
            if found := shutil.which(program):
                (self._bin / program).unlink(missing_ok=True)
                (self._bin / program).symlink_to(found)
        (self._bin / "torusrun").write_text(f'#!/bin/sh\nexec {self.python} -m torusrun "$@"\n')
        (self._bin / "torusrun").chmod(0o755)
        self.put(".ssh/config", "")
        self.sh(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.home / ".ssh" / "id_ed25519")])

    def _make_user(self) -> None:
        try:
            if pwd.getpwnam(USER).pw_dir != str(self.home):
                run(["usermod", "--home", str(self.home), USER])
        except KeyError:
            run(["useradd", "--no-create-home", "--home-dir", str(self.home), "--shell", "/bin/sh", USER])
        self.home.mkdir(parents=True, exist_ok=True)
        shutil.chown(self.home, USER, USER)

    @property
    def public_key(self) -> str:
        return (self.home / ".ssh" / "id_ed25519.pub").read_text().strip()

    def put(self, name: str, text: str) -> Path:
        """Write a file of its user, below the home."""
        path = self.home / name
        for folder in [*reversed(path.relative_to(self.home).parents)][1:]:
            if not (self.home / folder).exists():
                (self.home / folder).mkdir(mode=0o700)
                shutil.chown(self.home / folder, USER, USER)
        path.write_text(text)
        path.chmod(0o600)
        shutil.chown(path, USER, USER)
        return path

    def unplug(self) -> None:
        run(["ip", "link", "set", CABLE, "down"])

    def plug(self) -> None:
        run(["ip", "link", "set", CABLE, "up"])

    def _argv(self, argv: list[str]) -> list[str]:
        who = ["/usr/bin/setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        return [shutil.which("ip") or "ip", "netns", "exec", NAMESPACE, *who, "--", *argv]

    def sh(self, argv: list[str], timeout_s: float = 120, stdin: str = "") -> Said:
        """Run a program as its user."""
        argv = [shutil.which(argv[0], path=str(self._bin)) or argv[0], *argv[1:]]
        return subprocess.run(
            self._argv(argv), env=self.env, cwd=self.home, text=True, capture_output=True, timeout=timeout_s,
            input=stdin,
        )  # fmt: skip

    def torusrun(self, *words: str, timeout_s: float = 120, stdin: str = "") -> Said:
        return self.sh([self.python, "-m", "torusrun", *words], timeout_s, stdin)

    def on_terminal(self, *words: str) -> Terminal:
        """Start `torusrun WORDS` as its user on a terminal."""
        argv = self._argv([self.python, "-m", "torusrun", *words])
        argv = ["env", "-i", "-C", str(self.home), *(f"{name}={value}" for name, value in self.env.items()), *argv]
        return Terminal("import os, sys; os.execvp(sys.argv[1], sys.argv[1:])", *argv)

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start `torusrun WORDS` as its user."""
        return subprocess.Popen(
            self._argv([self.python, "-m", "torusrun", *words]), env=self.env, cwd=self.home, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def stop(self) -> None:
        for kind, name in (("link", CABLE), ("netns", NAMESPACE)):
            folder = "/sys/class/net" if kind == "link" else "/run/netns"
            if os.path.exists(f"{folder}/{name}"):
                run(["ip", kind, "del", name])
