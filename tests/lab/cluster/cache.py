"""Keeps results that are costly to make below one folder, across sessions: complete, or made again.

Remove the folder to get newer packages.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .processes import run

FOLDER = Path("/var/cache/torusrun-lab")


def cached(kind: str, made_from: str, make: Callable[[Path], None], folder: Path = FOLDER) -> Path:
    """The entry of this kind, filled by `make` unless a complete one exists; all users can read it.

    `made_from` is all that decides its content. One of several sessions makes it and the others wait.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    name = f"{kind}-{_digest(made_from)}"
    entry, mark = folder / name, folder / f"{name}.complete"
    with _locked(folder / f"{name}.lock"):
        if not (mark.exists() and mark.read_text() == _listing_digest(entry)):
            mark.unlink(missing_ok=True)
            shutil.rmtree(entry, ignore_errors=True)
            entry.mkdir()
            # Made in place, for programs that hold their own path; only the mark says that it is complete.
            make(entry)
            run(["chmod", "-R", "a+rX", str(entry)])
            mark.write_text(_listing_digest(entry))
    return entry


def _digest(made_from: str) -> str:
    system = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    return hashlib.sha256("\0".join([system, platform.machine(), made_from]).encode()).hexdigest()[:12]


def _listing_digest(entry: Path) -> str:
    lines = sorted(f"{path} {size} {mode:o}" for path, size, mode in _listing(entry))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _listing(entry: Path) -> Iterator[tuple[str, int, int]]:
    """The path, size and mode of every file below: shows missing, truncated and extra files."""
    for top, folders, files in os.walk(entry):
        for name in folders + files:
            status = os.lstat(os.path.join(top, name))
            size = 0 if name in folders else status.st_size
            yield os.path.relpath(os.path.join(top, name), entry), size, status.st_mode


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
