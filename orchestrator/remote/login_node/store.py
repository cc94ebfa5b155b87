"""Files on the login node by their SHA-256, so that the same code is not sent twice."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.keys.paths import checked, home
from torusrun.training.files.checksum import sha256_of

CHECKSUM = re.compile(r"[0-9a-f]{64}")


def place() -> Path:
    named = os.environ.get("XDG_CACHE_HOME", "")
    return (checked(named) if os.path.isabs(named) else home() / ".cache") / "torusrun" / "files"


def path_of(sha256: str) -> Path:
    if not CHECKSUM.fullmatch(sha256):
        raise SiteError(f"{sha256!r} is not a SHA-256")
    return place() / sha256[:2] / sha256


def missing(sha256s: list[str]) -> list[str]:
    """Those of the files that are not here. The others are used now."""
    return [sha256 for sha256 in sha256s if not _use(path_of(sha256))]


def _use(path: Path) -> bool:
    try:
        os.utime(path)
    except OSError:
        return False
    return path.is_file()


def unused(before_s: float) -> dict[Path, os.stat_result]:
    """The files that were not used since `before_s` (of time.time()), or not completed."""
    found = {}
    for path in place().glob("*/*"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            if status.st_mtime < before_s:
                found[path] = status
    return found


def keep(sha256: str, at: int, last: bool, content: bytes) -> None:
    """Add a part of a file, from its byte `at` on. After the last part the file is stored if it has this checksum.

    Parts may arrive twice. Raises SiteError if the file has another checksum.
    """
    path = path_of(sha256)
    if path.is_file():
        return
    private.make(path.parent)
    unfinished = path.with_name(f".{sha256}")
    with open(private.open_regular(unfinished, os.O_RDWR | os.O_CREAT), "r+b") as file:
        file.seek(at)
        file.write(content)
        if last:  # not earlier: another submission may send the same file, and be ahead
            file.truncate()
    if not last:
        return
    try:
        if (found := sha256_of(unfinished)) != sha256:
            unfinished.unlink(missing_ok=True)
            if path.is_file():  # another submission has just completed it, and this one began a new file
                return
            raise SiteError(f"a file arrived damaged: it has SHA-256 {found}, {sha256} was sent; try again")
        unfinished.replace(path)
    except FileNotFoundError:  # another submission has completed it
        if not path.is_file():
            raise
