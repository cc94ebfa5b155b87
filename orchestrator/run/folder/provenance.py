"""The provenance of a run: its code, versions and machine. No variables: they hold secrets."""

from __future__ import annotations

import platform
import socket
import sys
import time
from collections.abc import Collection, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base.environment import user_name
from torusrun.orchestrator.base.version import __version__
from torusrun.orchestrator.run.folder import checkout

PACKAGES = ("torch", "numpy", "scikit-learn", "submitit", "pyyaml", "jinja2")
COMPUTING = ("torch", "numpy", "scikit-learn")
REPRODUCES = "reproduces"  # the id of the run that this run repeats


def gather(
    source: Path, recipe: dict[str, Any] | None = None, secret: Collection[str] = ()
) -> tuple[dict[str, Any], str]:
    """(the provenance of a run whose spec is in the folder `source`, git's diff of `source` against its commit).

    `recipe` is the published recipe that the run names, with the run's changes to it. The diff quotes none of the files
    `secret`.
    """
    git = checkout.describe(source, secret)
    return {
        "schema": 1,
        "torusrun": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "host": socket.gethostname(),
        "user": user_name(),
        "system": platform.platform(),
        "submitted": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "git": git.record() if git else None,
        **({"recipe": recipe} if recipe else {}),
    }, git.diff if git else ""


def other_versions(before: Mapping[str, Any]) -> list[str]:
    """The software on which results may depend, and which has another version here than in a run's provenance."""
    packages = before.get("packages")
    known = packages if isinstance(packages, dict) else {}
    then = {"torusrun": before.get("torusrun"), "Python": before.get("python"), **{k: known.get(k) for k in COMPUTING}}
    now = {"torusrun": __version__, "Python": platform.python_version(), **{k: _version(k) for k in COMPUTING}}
    return [
        f"{name} is {now[name] or 'missing'}, and was {was}"
        for name, was in then.items()
        if isinstance(was, str) and was != now[name]
    ]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
