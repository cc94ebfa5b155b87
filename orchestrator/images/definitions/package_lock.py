"""The lock of an image: all of its packages, and the checksums of the Python archives that its build installed.

It lies beside the image in the cache. A build from it installs the same versions.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orchestrator.base.errors import UserError
from orchestrator.base.json_files import damaged, read_object, required
from orchestrator.images.definitions.requirements import BUILD_ONLY

SCHEMA = 1
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!~:_-]*")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]*")


@dataclass(frozen=True)
class SystemPackage:
    """A package of the distribution."""

    name: str
    version: str
    architecture: str = ""


@dataclass(frozen=True)
class PythonPackage:
    """A Python package; its source is known only if this build installed it."""

    name: str
    version: str
    sha256: str = ""
    source: str = ""  # the URL, without a login, of a package that came from no index
    commit: str = ""  # the commit of a git source


@dataclass(frozen=True)
class PackageLock:
    """The packages of an image."""

    name: str
    distribution: str = ""  # as in debian-12
    system: tuple[SystemPackage, ...] = ()
    python: tuple[PythonPackage, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}

    def requirements(self, archives: Collection[str] = ()) -> list[tuple[str, str]]:
        """(name below /mnt, text) of the requirements files that install the same Python packages.

        Packages from local files are left out unless they are among `archives`: the base has them.
        pip checks hashes of all packages of a file or of none, so packages without hashes get a second file.
        """
        hashed = [p for p in self.python if p.sha256 and not p.source]
        lines = "".join(f"{p.name}=={p.version} --hash=sha256:{p.sha256}\n" for p in hashed)
        there = {f"file://{BUILD_ONLY}/{name}" for name in archives}
        from_base = [p for p in self.python if p.source.startswith("file:") and p.source not in there]
        direct = "".join(_direct(p) for p in self.python if p.source and p not in from_base)
        return [(f"requirements/locked-{n}.txt", text) for n, text in enumerate((lines, direct)) if text or n == 0]


def read(path: Path) -> PackageLock:
    """The lock in `path`. Raises UserError if there is none, SiteError if it is damaged."""
    kept = read_object(path)
    if kept is None:
        raise UserError(f"{path}: there is no such lock; `torusrun image inspect IMAGE --lock` prints the one to keep")
    return from_json(kept, path)


def from_json(kept: dict[str, Any], path: Path) -> PackageLock:
    """The lock that was read from `path`. Raises SiteError if it is damaged: pip and apt get its words."""
    if kept.get("schema") != SCHEMA:
        raise damaged(path, "it is the lock of another version of torusrun")
    lists = {name: required(path, kept, name, list) for name in ("system", "python")}
    try:
        system = tuple(SystemPackage(**entry) for entry in lists["system"])
        python = tuple(PythonPackage(**entry) for entry in lists["python"])
    except TypeError:
        raise damaged(path, "a package in it has other keys than name and version") from None
    packages: list[SystemPackage | PythonPackage] = [*system, *python]
    for package in packages:
        _check(path, package)
    return PackageLock(required(path, kept, "name", str), required(path, kept, "distribution", str), system, python)


def for_build(path: Path) -> PackageLock:
    """The lock in `path`, fit to build from. Raises UserError if it does not identify the archives of pip."""
    lock = read(path)
    if lock.python and not any(package.sha256 for package in lock.python):
        raise UserError(
            f"{path}: it has no checksums of Python packages, so it cannot be built from; pip 22.2 or newer writes them"
        )
    return lock


def _check(path: Path, package: SystemPackage | PythonPackage) -> None:
    values = asdict(package)
    if not all(isinstance(value, str) for value in values.values()):
        raise damaged(path, "a package in it holds something other than text")
    if not (NAME.fullmatch(package.name) and VERSION.fullmatch(package.version)):
        raise damaged(path, f"{package.name!r} {package.version!r} is no package and version")
    if any(re.search(r"\s", value) for value in values.values()):
        raise damaged(path, f"a value of {package.name!r} has a space or line break")
    sha256 = values.get("sha256")
    if sha256 and not re.fullmatch("[0-9a-f]{64}", sha256):
        raise damaged(path, f"the checksum of {package.name!r} is no SHA-256")


def _direct(package: PythonPackage) -> str:
    reference = f"git+{package.source}@{package.commit}" if package.commit else package.source
    return f"{package.name} @ {reference}" + (f"#sha256={package.sha256}" if package.sha256 else "") + "\n"
