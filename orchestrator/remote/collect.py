"""Collect a run from a login node: a copy is made and verified there, fetched file by file, and verified here.

A file that an interrupted call has fetched is not fetched again, if its size and its SHA-256 are those announced.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.private import OTHERS_WRITE
from torusrun.orchestrator.keys.paths import absolute
from torusrun.orchestrator.remote import asking
from torusrun.orchestrator.remote.links.frames import PIECE_BYTES
from torusrun.orchestrator.remote.links.host import BadAnswer, LinkLost
from torusrun.orchestrator.remote.login_node.sent_files import SentEntry
from torusrun.orchestrator.remote.remote_runs import Known
from torusrun.orchestrator.remote.session import Session
from torusrun.orchestrator.run.folder.copying import keep_only, new_part
from torusrun.orchestrator.run.folder.patterns import Pattern
from torusrun.orchestrator.upkeep.collect import collecting
from torusrun.training.files.below import Below
from torusrun.training.files.checksum import of_stream

COPIED_S = 86400.0  # for the copy on the login node: checkpoints may be large, and the file system slow
BLOCK_BYTES = 4096  # the size of the smallest file on disk


def collect(run: Known, into: Path, checkpoints: str, only: Sequence[Pattern] = ()) -> Path:
    """Copy a run into the new folder `into`, whole or not at all; `checkpoints` and `only` as in upkeep/collect.py.

    Raises UserError if `into` exists or the patterns choose nothing, SiteError if the copy fails or there is no room
    for it: the same call then continues.
    """
    with collecting(into, run.run) as partial:
        fetch(run, partial, checkpoints, only)
    return absolute(into)


def fetch(run: Known, into: Below, checkpoints: str, only: Sequence[Pattern]) -> None:
    """Copy a run into a folder that has only what earlier calls fetched. Raises UserError, SiteError, OSError.

    The login node announces names: those that nobody asked for are refused, before anything is fetched.
    """
    name = f"collect-{secrets.token_hex(12)}"
    with Session(run.host) as link, _forgotten(link, name):
        request = {"do": "collect", "run": run.run, "checkpoints": checkpoints, "only": [asdict(one) for one in only]}
        announced = asking.answer(link, request, tuple[SentEntry, ...], name, text=str, within_s=COPIED_S)
        for entry in announced:
            _check(link, entry, only)
        entries = [entry for entry in announced if not _is_here(entry, into)]
        _check_room(link, entries, into.path)
        for entry in entries:
            _fetch(link, name, entry, into)
        keep_only(into, {entry.name for entry in announced})


def _check(link: Session, entry: SentEntry, only: Sequence[Pattern]) -> None:
    """Raise SiteError unless an announced entry has a name below the run, no hidden one, that was asked for."""
    if not _is_below(entry.name):
        raise BadAnswer(f"{link.host.address}: {entry.name!r} is not the name of a file below the run")
    if any(part.startswith(".") for part in entry.name.split("/")):
        raise BadAnswer(f"{link.host.address}: it announces {entry.name!r}, and hidden files are not copied")
    is_folder = entry.kind == "folder"
    if only and not any(pattern.allows(entry.name, is_folder=is_folder) for pattern in only):
        raise BadAnswer(f"{link.host.address}: it announces {entry.name!r}, which was not asked for")


def _is_here(entry: SentEntry, into: Below) -> bool:
    """Whether an earlier call has fetched the file or folder."""
    found = into.status(entry.name)
    if found is None or entry.kind == "folder":
        return found is not None and stat.S_ISDIR(found.st_mode)
    with suppress(OSError), open(into.open(entry.name), "rb") as file:
        return found.st_size == entry.size_bytes and of_stream(file) == entry.sha256
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


def _fetch(link: Session, call: str, entry: SentEntry, into: Below) -> None:
    """Fetch one file or folder. Raises SiteError unless it is as listed."""
    mode = entry.mode & 0o777 & ~OTHERS_WRITE
    if entry.kind == "folder":
        with into.folder(entry.name, mode | 0o700):
            return
    digest, at = hashlib.sha256(), 0
    with into.unfinished(entry.name, new_part(), mode) as file:
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
    return "\0" not in name and not {"", ".", ".."} & {*name.split("/")}
