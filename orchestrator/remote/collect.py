"""Collect a run from a login node: a copy is made and verified there, fetched file by file, and verified here.

A file that an interrupted call has fetched is not fetched again, if its size and its SHA-256 are those announced.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path, PurePosixPath

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.private import OTHERS_WRITE
from torusrun.orchestrator.folder.copying import keep_only, part_of
from torusrun.orchestrator.folder.patterns import Pattern
from torusrun.orchestrator.remote import asking
from torusrun.orchestrator.remote.links.frames import PIECE_BYTES
from torusrun.orchestrator.remote.links.host import BadAnswer, LinkLost
from torusrun.orchestrator.remote.login_node.sent_files import SentEntry
from torusrun.orchestrator.remote.remote_runs import Known
from torusrun.orchestrator.remote.session import Session
from torusrun.orchestrator.runs.collect import collecting
from torusrun.orchestrator.spec.paths import absolute
from torusrun.training.files.checksum import sha256_of
from torusrun.training.files.trusted import unfinished

COPIED_S = 86400.0  # for the copy on the login node: checkpoints may be large, and the file system slow
BLOCK_BYTES = 4096  # the size of the smallest file on disk


def collect(run: Known, into: Path, checkpoints: str, only: Sequence[Pattern] = ()) -> Path:
    """Copy a run into the new folder `into`, whole or not at all; `checkpoints` and `only` as in runs/collect.py.

    Raises UserError if `into` exists or the patterns choose nothing, SiteError if the copy fails or there is no room
    for it: the same call then continues.
    """
    with collecting(into, run.run) as partial:
        fetch(run, partial, checkpoints, only)
    return absolute(into)


def fetch(run: Known, into: Path, checkpoints: str, only: Sequence[Pattern]) -> None:
    """Copy a run into a folder that has only what earlier calls fetched. Raises UserError, SiteError, OSError."""
    name = f"collect-{secrets.token_hex(12)}"
    with Session(run.host) as link, _forgotten(link, name):
        request = {"do": "collect", "run": run.run, "checkpoints": checkpoints, "only": [asdict(one) for one in only]}
        announced = asking.answer(link, request, tuple[SentEntry, ...], name, text=str, within_s=COPIED_S)
        entries = [entry for entry in announced if not _is_here(entry, into)]
        _check_room(link, entries, into)
        for entry in entries:
            _fetch(link, name, entry, into)
        keep_only(into, {into / entry.name for entry in announced})


def _is_here(entry: SentEntry, into: Path) -> bool:
    """Whether an earlier call has fetched the file or folder."""
    path = into / entry.name
    if not _is_below(entry.name) or path.is_symlink():
        return False
    if entry.kind == "folder":
        return path.is_dir()
    with suppress(OSError):
        return path.is_file() and path.stat().st_size == entry.size_bytes and sha256_of(path) == entry.sha256
    return False


@contextmanager
def _forgotten(link: Session, call: str) -> Iterator[None]:
    """A context in which a copy is fetched. Then it is removed on the login node, unless the link is lost."""
    try:
        yield
    except LinkLost:
        raise
    except Exception:
        with suppress(SiteError):
            link.ask({"ask": "forget", "call": call})
        raise
    link.ask({"ask": "forget", "call": call})


def _check_room(link: Session, entries: Sequence[SentEntry], folder: Path) -> None:
    """Raise SiteError if there is no room for the announced bytes."""
    if any(entry.size_bytes < 0 for entry in entries):
        raise BadAnswer(f"{link.host.address}: it announces a file of less than 0 bytes")
    needed, free = sum(entry.size_bytes + BLOCK_BYTES for entry in entries), shutil.disk_usage(folder).free
    if needed > free:
        raise SiteError(
            f"{folder.parent}: {free / 2**30:.2f} GiB are free, and the run takes {needed / 2**30:.2f} GiB: make room, "
            "collect into another file system, or leave checkpoints out (--checkpoints none)"
        )


def _fetch(link: Session, call: str, entry: SentEntry, into: Path) -> None:
    """Fetch one file or folder. Raises SiteError unless it is as listed."""
    path, mode = into / entry.name, entry.mode & 0o777 & ~OTHERS_WRITE
    if not _is_below(entry.name):
        raise BadAnswer(f"{link.host.address}: {entry.name!r} is not the name of a file below the run")
    if entry.kind == "folder":
        return path.mkdir(mode=mode | 0o700)
    digest, at = hashlib.sha256(), 0
    with unfinished(path, part_of(path), mode) as file:
        while at < entry.size_bytes:
            _, data = link.ask({"ask": "fetch", "call": call, "file": entry.name, "at": at})
            if len(data) != min(PIECE_BYTES, entry.size_bytes - at):
                break
            digest.update(data)
            at += file.write(data)
        if digest.hexdigest() != entry.sha256:
            raise SiteError(f"{link.host.address}: {entry.name} is not what was announced; collect the run again")


def _is_below(name: str) -> bool:
    """Whether a file of this name lies below a folder that contains no links."""
    try:
        os.fsencode(name)
    except ValueError:
        return False
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\0" not in name
