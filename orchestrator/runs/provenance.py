"""Where a run's code came from and what it ran on, kept beside it. No environment variables: they hold secrets."""

from __future__ import annotations

import getpass
import os
import platform
import socket
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from orchestrator import private, process
from orchestrator.errors import SiteError
from orchestrator.version import __version__

PACKAGES = ("torch", "numpy", "scikit-learn", "submitit", "pyyaml", "jinja2", "rich")
GIT_TIMEOUT_S = 20.0
QUIET = ("--no-optional-locks", "--no-pager", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")


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
    """Commit, branch and changes of the checkout that `folder` is in; None where it is in none, or in another's."""
    if not _own_checkout(folder):
        return None, ""
    try:
        filters = _ask(folder, "config", "--local", "--name-only", "--get-regexp", r"^filter\.", fails=True).split()
        off = [word for name in filters for word in ("-c", f"{name}=")]
        commit = _ask(folder, *off, "rev-parse", "HEAD")
        status = _ask(folder, *off, "status", "--porcelain", "--ignore-submodules=all")
        diff = _ask(folder, *off, "diff", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "HEAD")
    except SiteError:
        return None, ""
    untracked = [line[3:] for line in status.splitlines() if line.startswith("??")]
    return {"commit": commit.strip(), "dirty": bool(status), "untracked": untracked}, diff


def _own_checkout(folder: Path) -> bool:
    """Whether the nearest checkout around `folder` is the user's own: another's configuration names programs to run."""
    for place in (folder, *folder.parents):
        if os.path.lexists(place / ".git"):
            return private.is_mine(place) and private.is_mine(place / ".git")
    return False


def _ask(folder: Path, *words: str, fails: bool = False) -> str:
    """What git says, with nothing run that a checkout's configuration names. `fails`: an error is no answer."""
    said = process.run(["git", *QUIET, "-C", folder, *words], timeout_s=GIT_TIMEOUT_S)
    return said.stdout if fails else said.check("asking git").stdout


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
