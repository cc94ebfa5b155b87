"""Query an image for its packages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.environment import clean_environment
from torusrun.orchestrator.images.builds import installed
from torusrun.orchestrator.images.command import ContainerExec, inside
from torusrun.orchestrator.images.definitions.definition import INSTALLED
from torusrun.orchestrator.images.definitions.misfits import has_login
from torusrun.orchestrator.images.definitions.package_lock import PackageLock, PythonPackage, SystemPackage
from torusrun.orchestrator.images.runtime import own_environment

ASKING_S = 120.0


def packages(name: str, container: ContainerExec) -> PackageLock | None:
    """The packages of an image, or None if it has no Python that can list them."""
    script = Path(installed.__file__).read_text(encoding="utf-8")
    argv = inside(container.only_asked(), process.bare_program("python3", script, INSTALLED), {}, {}).argv
    said = process.run(argv, timeout_s=ASKING_S, environment=own_environment(clean_environment()))
    return parse(name, said.stdout)


def parse(name: str, said: str) -> PackageLock | None:
    """The lock from the output of `installed`, or None if that printed nothing."""
    match = re.search(r"^TORUSRUN-INSTALLED (\{.*\})$", said, re.MULTILINE)
    if not match:
        return None
    found = json.loads(match[1])
    reports = {_normal(entry[0]): entry for entry in found["pip"]}
    return PackageLock(
        name,
        found["distribution"],
        tuple(SystemPackage(*entry) for entry in found["system"]),
        tuple(_python(own, version, url, reports.get(_normal(own))) for own, version, url in found["python"]),
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
