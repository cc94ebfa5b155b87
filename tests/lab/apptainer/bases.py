"""A small Debian with Python, pip and Open MPI: a folder from which images are built, made once."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.lab.cluster.processes import run

from . import archive

PACKAGES = ["python3", "python3-pip", "python3-venv", "openmpi-bin"]
# Device nodes, which only root can copy, and folders that no test reads.
EMPTIED = ["dev", "var/cache/apt", "var/lib/apt/lists", "var/log", "usr/share/doc", "usr/share/locale", "usr/share/man"]


def make_debian(entry: Path) -> None:
    include = f"--include={','.join(PACKAGES)}"
    argv = ["debootstrap", "--variant=minbase", include, archive.release(), str(entry), archive.mirror()]
    run(argv, timeout_s=900)
    for name in EMPTIED:
        for path in (entry / name).iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def python_version(base: Path) -> str:
    """The version of Python in `base`, such as "3.11"."""
    return (base / "usr/bin/python3").readlink().name.removeprefix("python")
