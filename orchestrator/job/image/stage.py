"""Copies the image to every node's own disk before its ranks start, so that a shared file system is read once.

FOLDER/torusrun-UID/SUM.sif    the copy; SUM is the beginning of the image's SHA-256
FOLDER/torusrun-UID/SUM.json   the identity of the copy when its SHA-256 was last right, and the attempt
FOLDER/torusrun-UID/SUM.lock   held by one rank of the node at a time
FOLDER/torusrun-UID/.SUM.sif.* a copy in progress, or one that was sent and is not verified yet

A copy is used only after its SHA-256 is found equal to the one that the run keeps. The first rank of a node checks
that once in an attempt; the other ranks only check that the file has not changed since.

`orchestrator.job.image.stage FOLDER SHA256 ATTEMPT_FOLDER` prepares a node for an image that is sent to it.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torusrun.orchestrator.base import private, process
from torusrun.orchestrator.base.errors import SiteError, TorusrunError
from torusrun.training.files import lock
from torusrun.training.files.trusted import make_own_folder, of_stream, own_folder, sha256_of, unfinished
from torusrun.training.reporting.output import never_fail

if TYPE_CHECKING:
    from torusrun.orchestrator.run.image.recorded import Image
    from torusrun.orchestrator.schedulers.interface import Scheduler

BROADCAST_S = 1800.0
LARGEST_RECORD_BYTES = 64 * 1024
COPIES = 2  # a copy with a wrong checksum is made once more
MEND = (
    "set 'container.stage' of the site to a folder that only the job uses, such as $TORUSRUN_SCRATCH if the "
    "scheduler sets it, or ask for this one to be removed"
)


def broadcast(scheduler: Scheduler, image: Image, folder: str, python: str, attempt: Path) -> None:
    """Send the image to all nodes of the job, if the scheduler has a way to do so. Raises SiteError if that fails.

    The ranks take the sent file by `copied`, with the same `folder` and `attempt`. The folder's variables must be the
    same on all nodes; on a node with other values, the ranks copy the image themselves.
    """
    ready = process.module(python, "torusrun.orchestrator.job.image.stage", folder, image.sha256, attempt)
    destination = sent(place(folder, image.sha256), attempt)
    if make := scheduler.reach.broadcast_commands:
        for command in make(os.environ, ready, Path(image.path), destination):
            process.run(command, timeout_s=BROADCAST_S, environment=os.environ).check("staging the image")


def main() -> int:
    folder, sha256, attempt = sys.argv[1:]
    try:
        copy = place(folder, sha256)
        make(copy.parent)
        sent(copy, Path(attempt)).unlink(missing_ok=True)  # of the same attempt, before its job was requeued
    except (TorusrunError, OSError) as error:
        print(f"torusrun: {socket.gethostname()}: {error}", file=sys.stderr, flush=True)
        return SiteError.exit_code
    return 0


def copied(image: Path, folder: str, sha256: str, attempt: Path) -> Path:
    """The image's copy below this node's `folder`, with the right checksum; the first rank here makes or verifies it.

    Raises SiteError if the folder is not this user's alone, the copy cannot be made, or its checksum is wrong.
    """
    copy = place(folder, sha256)
    make(copy.parent)
    try:
        with lock.held(copy.with_suffix(".lock")):
            if not _is_known(copy, attempt):
                _clear_old(copy)
                _provide(copy, image, sha256, attempt)
                private.write_bytes(_record(copy), json.dumps(_identity(copy, attempt)).encode())
    except OSError as error:
        raise SiteError(f"{error.filename or copy}: the image cannot be staged here: {error.strerror}") from None
    return copy


def place(folder: str, sha256: str) -> Path:
    """The path of an image's copy on a node. Raises SiteError if the folder's variables are not set."""
    expanded = os.path.expandvars(os.path.expanduser(folder))
    if "$" in expanded:
        raise SiteError(f"'container.stage' {folder!r} names a variable that is not set on this node")
    return below(expanded, sha256)


def below(folder: str, sha256: str) -> Path:
    """The path of an image's copy below a folder, which may still contain variables."""
    return own_folder(folder) / f"{sha256[:16]}.sif"


def sent(copy: Path, attempt: Path) -> Path:
    """The path of an image that was sent to a node for an attempt, until its checksum is verified."""
    return copy.with_name(f".{copy.name}.{hashlib.sha256(str(attempt).encode()).hexdigest()[:16]}")


def make(folder: Path) -> None:
    """Make a folder of this user alone, or check the existing one. Raises SiteError that names its owner."""
    try:
        private.make(folder.parent)
        wrong = make_own_folder(folder)
    except OSError as error:
        raise SiteError(f"{folder}: this folder cannot be made: {error.strerror}; {MEND}") from None
    except SiteError as error:
        raise SiteError(f"{error}; {MEND}") from None
    if wrong:
        raise SiteError(f"{folder}: {wrong}, so nothing is kept there; {MEND}")


class _Differs(Exception):
    """A copy has another checksum."""


def _provide(copy: Path, image: Path, sha256: str, attempt: Path) -> None:
    """Put a file with the right checksum at `copy`: the sent one, the existing one, or a new one."""
    for found in (sent(copy, attempt), copy):
        if _sum(found) == sha256:
            found.replace(copy)
            return
        found.unlink(missing_ok=True)
    source = Path(os.path.realpath(image))
    for _ in range(COPIES):
        partial = copy.with_name(f".{copy.name}.{secrets.token_hex(8)}")
        with suppress(_Differs):
            with open(private.open_regular(source), "rb") as reading, unfinished(copy, partial) as writing:
                if (total := of_stream(reading, writing)) != sha256:
                    raise _Differs  # so that it never gets its final name
            return
    raise SiteError(
        f"{image}: copied to {copy.parent} on {socket.gethostname()}, its SHA-256 is {total}, and was {sha256} when "
        f"the run was submitted: the image was changed, or a disk fails; put the old one back, or "
        f"`torusrun resume RUN --new-image`"
    )


def _sum(path: Path) -> str:
    """SHA-256 of a regular file; '' if there is none, or it cannot be read."""
    try:
        return sha256_of(path)
    except OSError:
        return ""


def _record(copy: Path) -> Path:
    return copy.with_suffix(".json")


def _is_known(copy: Path, attempt: Path) -> bool:
    """Whether the copy is the same file whose checksum was verified in this attempt, and unchanged."""
    try:
        known = json.loads(private.read_bytes(_record(copy), LARGEST_RECORD_BYTES))
        return bool(known == _identity(copy, attempt))
    except (OSError, ValueError, RecursionError):
        return False


def _identity(copy: Path, attempt: Path) -> dict[str, Any]:
    """Values that change if the file changes: no program can set its ctime."""
    found = copy.lstat()
    return {
        "attempt": str(attempt),
        "inode": found.st_ino,
        "size_bytes": found.st_size,
        "mtime_ns": found.st_mtime_ns,
        "ctime_ns": found.st_ctime_ns,
    }


def _clear_old(copy: Path) -> None:
    """Remove the files of killed jobs. A file that is being sent or copied has a recent mtime, and so stays."""
    for path in copy.parent.glob(f".{copy.name}.*"):
        try:
            if time.time() - path.lstat().st_mtime > BROADCAST_S:
                path.unlink()
        except OSError:
            continue


if __name__ == "__main__":
    never_fail()
    sys.exit(main())
