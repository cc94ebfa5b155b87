"""Apptainer's needs on this machine: user namespaces for all users, FUSE, and programs of Debian's own release."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tests.lab.cluster import packages
from tests.lab.cluster.processes import run

PACKAGE_OF = {
    "newuidmap": "uidmap",  # more than one user inside: apt and dpkg change owners
    "fakeroot": "fakeroot",
    "mksquashfs": "squashfs-tools",
    "squashfuse_ll": "squashfuse",  # mounts a SIF without root
    "fuse-overlayfs": "fuse-overlayfs",
    "debootstrap": "debootstrap",
    "arch-test": "arch-test",  # debootstrap's recommendation: it takes chroot from PATH
    "patchelf": "patchelf",
}
FUSE = Path("/dev/fuse")
FUSE_NUMBERS = os.makedev(10, 229)
AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def why_not_here() -> str | None:
    """The reason why this machine cannot run Apptainer for an ordinary user, or None."""
    if reason := packages.why_not_here():
        return reason.replace("Slurm", "Apptainer").replace(" (it makes network namespaces)", "")
    said = run([*AS_NOBODY, "unshare", "--user", "--map-root-user", "--mount", "true"], check=False)
    if said.returncode:
        return f"ordinary users may not make user namespaces here: {said.stderr.strip()}"
    return None


def install() -> None:
    packages.install_missing(PACKAGE_OF)
    if not FUSE.exists():
        os.mknod(FUSE, 0o666 | stat.S_IFCHR, FUSE_NUMBERS)
    FUSE.chmod(0o666)
