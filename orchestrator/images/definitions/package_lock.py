"""The lock of an image: all of its packages, and the checksums of the Python archives that its build installed.

It lies beside the image in the cache. A build from it installs the same versions, and no file in it is newer than the
build of the lock, so that two builds of one lock are the same bits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.environment import clean_environment
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.json_files import damaged, read_object
from torusrun.orchestrator.base.typed import kept_record
from torusrun.orchestrator.images.command import TRAINING, ContainerExec, inside
from torusrun.orchestrator.images.definitions import installed
from torusrun.orchestrator.images.definitions.build_secrets import has_login
from torusrun.orchestrator.images.definitions.requirements import BUILD_ONLY
from torusrun.orchestrator.images.runtime import own_environment
from torusrun.training.recipe.key import Limits, Pattern

SCHEMA = 1
LOCKED = "requirements/locked"  # the beginning of the names of requirements files from a lock
# pip and apt get these words, so they are checked as they are read.
Name = Annotated[str, Pattern("a package's name", r"[A-Za-z0-9][A-Za-z0-9.+_-]*")]
Version = Annotated[str, Pattern("a version", r"[A-Za-z0-9][A-Za-z0-9.+!~:_-]*")]
Word = Annotated[str, Pattern("without spaces and line breaks", r"\S*")]

INSTALLED = f"{TRAINING}/pip.jsonl"  # pip's reports on the archives that it installed, one line for each call of pip
ASKING_S = 120.0


@dataclass(frozen=True)
class SystemPackage:
    """A package of the distribution."""

    name: Name
    version: Version
    architecture: Word = ""


@dataclass(frozen=True)
class PythonPackage:
    """A Python package; its source is known only if this build installed it."""

    name: Name
    version: Version
    sha256: Annotated[str, Pattern("a SHA-256", "([0-9a-f]{64})?")] = ""
    source: Word = ""  # the URL, without a login, of a package that came from no index
    commit: Word = ""  # the commit of a git source


@dataclass(frozen=True)
class PackageLock:
    """The packages of an image."""

    name: str
    distribution: str = ""  # as in debian-12
    system: tuple[SystemPackage, ...] = ()
    python: tuple[PythonPackage, ...] = ()
    built_s: Annotated[int, Limits(at_least=0)] = 0  # the time of the build, in seconds since the epoch; 0 if unknown

    def as_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}

    def requirements(self, archives: Collection[str] = ()) -> list[tuple[str, str]]:
        """(name below /mnt, text) of the requirements files that install the same Python packages.

        Packages from local files are left out unless they are among `archives`: the base has them.
        pip checks hashes of all packages of a file or of none, so packages without hashes get a second file.
        """
        hashed = [p for p in self.python if p.sha256 and not p.source]
        lines = "".join(f"{p.name}=={p.version} --hash=sha256:{p.sha256}\n" for p in hashed)
        brought = {f"file://{BUILD_ONLY}/{name}" for name in archives}
        from_base = [p for p in self.python if p.source.startswith("file:") and p.source not in brought]
        direct = "".join(_direct(p) for p in self.python if p.source and p not in from_base)
        return [(f"{LOCKED}-{n}.txt", text) for n, text in enumerate((lines, direct)) if text or n == 0]


def read_lock(path: Path) -> PackageLock:
    """The lock in `path`. Raises UserError if the file is missing, SiteError if it is damaged."""
    kept = read_object(path)
    if kept is None:
        raise UserError(f"{path}: there is no such lock; `torusrun image inspect IMAGE` names the file to copy")
    if kept.get("schema") != SCHEMA:
        raise damaged(path, "it is the lock of another version of torusrun")
    lock = kept_record(path, PackageLock, kept)
    for name, kind in (("system", SystemPackage), ("python", PythonPackage)):
        if unknown := {key for entry in kept[name] for key in entry} - {field.name for field in fields(kind)}:
            raise damaged(path, f"a package in {name!r} has the unknown key {min(unknown)!r}")
    return lock


def for_build(path: Path) -> PackageLock:
    """The lock in `path`, fit to build from. Raises UserError if it does not identify the archives of pip."""
    lock = read_lock(path)
    if lock.python and not any(package.sha256 for package in lock.python):
        raise UserError(
            f"{path}: it has no checksums of Python packages, so it cannot be built from; pip 22.2 or newer writes them"
        )
    return lock


def _direct(package: PythonPackage) -> str:
    reference = f"git+{package.source}@{package.commit}" if package.commit else package.source
    return f"{package.name} @ {reference}" + (f"#sha256={package.sha256}" if package.sha256 else "") + "\n"


def packages(name: str, container: ContainerExec) -> PackageLock | None:
    """The packages of an image, or None if it has no Python that can list them."""
    script = Path(installed.__file__).read_text(encoding="utf-8")
    argv = inside(container.only_asked(), process.bare_program("python3", script, INSTALLED), {}, {}).argv
    done = process.run(argv, timeout_s=ASKING_S, environment=own_environment(clean_environment()))
    return parse_packages(name, done.stdout)


def parse_packages(name: str, output: str) -> PackageLock | None:
    """The lock from the output of `installed`, or None if that printed nothing."""
    match = re.search(r"^TORUSRUN-INSTALLED (\{.*\})$", output, re.MULTILINE)
    if not match:
        return None
    report = json.loads(match[1])
    reports = {_normal(entry[0]): entry for entry in report["pip"]}
    return PackageLock(
        name,
        report["distribution"],
        tuple(SystemPackage(*entry) for entry in report["system"]),
        tuple(_python(own, version, url, reports.get(_normal(own))) for own, version, url in report["python"]),
    )


def _python(name: str, version: str, url: str, report: list[Any] | None) -> PythonPackage:
    """A package with pip's report on it, unless another version replaced the reported one later."""
    if report is None or report[1] != version:
        return PythonPackage(name, version)
    direct, archive, vcs = report[2:5]
    sha256 = archive.get("hashes", {}).get("sha256") or archive.get("hash", "").partition("sha256=")[2]
    source = url if direct and not has_login(url) else ""
    return PythonPackage(name, version, sha256, source, vcs.get("commit_id", ""))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
