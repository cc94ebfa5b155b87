"""Debian's archive, from the mirror that this machine already uses."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.cluster.processes import LabError, run

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def release() -> str:
    """The name of this machine's Debian release, such as "bookworm"."""
    return platform.freedesktop_os_release()["VERSION_CODENAME"]


def mirror() -> str:
    """The URL from which apt gets this release's main packages."""
    if not _mirrors():
        run(["apt-get", "update", "-qq"], timeout_s=300)  # only the lists have the origin
    for url in _mirrors():
        return url
    raise LabError("no source of apt gives Debian's main packages: see /etc/apt/sources.list*")


def _mirrors() -> list[str]:
    wanted = ["Created-By: Packages", "Origin: Debian", f"Codename: {release()}", "Component: main"]
    return run(["apt-get", "indextargets", "--format", "$(REPO_URI)", *wanted]).stdout.split()


@contextmanager
def downloaded(suite: str, *packages: str) -> Iterator[list[Path]]:
    """The packages of a suite and all their dependencies, with checked signatures, as .deb files.

    apt gets its own state, in which nothing is installed: neither the system's packages nor its lists change.
    """
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "archives" / "partial").mkdir(parents=True)
        (root / "lists" / "partial").mkdir(parents=True)
        (root / "status").touch()
        architecture = run(["dpkg", "--print-architecture"]).stdout.strip()
        source = f"deb [arch={architecture} signed-by={KEYRING}] {mirror()} {suite} main\n"
        (root / "sources.list").write_text(source)
        apt = ["apt-get", "-qq", "--yes", "--no-install-recommends", *_options(root, suite)]
        run([*apt, "update"], timeout_s=300)
        run([*apt, "--download-only", "install", *packages], timeout_s=600)
        yield sorted((root / "archives").glob("*.deb"))


def _options(root: Path, suite: str) -> list[str]:
    settings = {
        "Dir::Etc::SourceList": f"{root}/sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::Etc::Preferences": "/dev/null",
        "Dir::Etc::PreferencesParts": "/dev/null",
        "Dir::State": str(root),
        "Dir::State::Status": f"{root}/status",
        "Dir::Cache": str(root),
        "APT::Default-Release": suite,
        "APT::Sandbox::User": "root",  # apt's own user cannot enter the temporary folder
        "Acquire::Check-Valid-Until": "false",  # sid's lists last a week; a mirror's may be older, and are signed
        "Acquire::Languages": "none",
    }
    return [f"--option={name}={value}" for name, value in settings.items()]
