"""Where a run's code came from and what it ran on, kept beside it. No environment variables: they hold secrets."""

from __future__ import annotations

import getpass
import platform
import socket
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from orchestrator import process
from orchestrator.errors import SiteError
from orchestrator.version import __version__

PACKAGES = ("torch", "numpy", "scikit-learn", "submitit", "pyyaml", "jinja2", "rich")
GIT_TIMEOUT_S = 20.0


def gather(source: Path) -> tuple[dict[str, Any], str]:
    """The provenance of a run whose spec lies in the folder `source`, and git's diff of it against its commit."""
    code, diff = _git(source)
    return {
        "schema": 1,
        "torusrun": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "host": socket.gethostname(),
        "user": getpass.getuser(),
        "system": platform.platform(),
        "submitted": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "git": code,
    }, diff


def _git(folder: Path) -> tuple[dict[str, Any] | None, str]:
    """Commit, branch and changes of the checkout that `folder` is in; None where it is in none."""
    try:
        commit = _ask(folder, "rev-parse", "HEAD")
        status = _ask(folder, "status", "--porcelain")
        diff = _ask(folder, "diff", "HEAD")
    except SiteError:
        return None, ""
    untracked = [line[3:] for line in status.splitlines() if line.startswith("??")]
    return {"commit": commit.strip(), "dirty": bool(status), "untracked": untracked}, diff


def _ask(folder: Path, *words: str) -> str:
    return process.run(["git", "-C", folder, *words], timeout_s=GIT_TIMEOUT_S).check("asking git").stdout


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
