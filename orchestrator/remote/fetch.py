"""Fetch a run from a login node: a copy is made and verified there, sent in one stream, and each file verified here.

A file that an interrupted call has fetched is not fetched again, if its size and its SHA-256 are those announced.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.private import OTHERS_WRITE
from torusrun.orchestrator.remote import call
from torusrun.orchestrator.remote.host import BadAnswer, LoginHost
from torusrun.orchestrator.remote.program import WaitLimits
from torusrun.orchestrator.remote.remote_runs import Known
from torusrun.orchestrator.remote.store import SentEntry
from torusrun.orchestrator.run.folder.copying import keep_only, new_part
from torusrun.orchestrator.run.folder.patterns import Pattern
from torusrun.training.files.below import Below
from torusrun.training.files.trusted import of_stream

COPIED = WaitLimits(answer_s=86400.0)  # checkpoints may be large, and the file system slow
BLOCK_BYTES = 4096  # the size of the smallest file on disk


def fetch(run: Known, into: Below, checkpoints: str, only: Sequence[Pattern]) -> None:
    """Copy a run into a folder that has only what earlier calls fetched. Raises UserError, SiteError, OSError.

    The login node announces names: those that nobody asked for are refused, before anything is fetched.
    """
    copy = {"run": run.run, "name": secrets.token_hex(8)}
    request = {"do": "collect", **copy, "checkpoints": checkpoints, "only": [asdict(pattern) for pattern in only]}
    try:
        announced: tuple[SentEntry, ...] = call.repeated(
            run.host, lambda: call.answer(run.host, request, tuple[SentEntry, ...], limits=COPIED, text=str)
        )
        for entry in announced:
            _check(run.host, entry, only)
        _check_room(run.host, [entry for entry in announced if not _is_here(entry, into)], into.path)
        for entry in announced:
            if entry.kind == "folder":
                with into.folder(entry.name, _mode(entry) | 0o700):
                    pass
        call.repeated(run.host, lambda: _fetch_missing(run.host, copy, announced, into))
        keep_only(into, {entry.name for entry in announced})
    finally:
        with suppress(SiteError):
            call.captured(run.host, {"do": "drop", **copy})


def _check(host: LoginHost, entry: SentEntry, only: Sequence[Pattern]) -> None:
    """Raise SiteError unless an announced entry has a name below the run that is not hidden and was asked for."""
    if not _is_below(entry.name) or entry.kind not in ("file", "folder"):
        raise BadAnswer(f"{host.address}: {entry.name!r} is not the name of a file below the run")
    if any(part.startswith(".") for part in entry.name.split("/")):
        raise BadAnswer(f"{host.address}: it announces {entry.name!r}, and hidden files are not copied")
    is_folder = entry.kind == "folder"
    if only and not any(pattern.allows(entry.name, is_folder=is_folder) for pattern in only):
        raise BadAnswer(f"{host.address}: it announces {entry.name!r}, which was not asked for")


def _is_below(name: str) -> bool:
    """Whether a file of this name lies below a folder that contains no links."""
    try:
        os.fsencode(name)
    except ValueError:
        return False
    return "\0" not in name and not {"", ".", ".."} & {*name.split("/")}


def _is_here(entry: SentEntry, into: Below) -> bool:
    """Whether an earlier call has fetched the file or folder."""
    status = into.status(entry.name)
    if status is None or entry.kind == "folder":
        return status is not None and stat.S_ISDIR(status.st_mode)
    with suppress(OSError), open(into.open(entry.name), "rb") as file:
        return status.st_size == entry.size_bytes and of_stream(file) == entry.sha256
    return False


def _check_room(host: LoginHost, entries: Sequence[SentEntry], folder: Path) -> None:
    """Raise SiteError if the announced bytes have no room."""
    if any(entry.size_bytes < 0 for entry in entries):
        raise BadAnswer(f"{host.address}: it announces a file of less than 0 bytes")
    needed, free = sum(entry.size_bytes + BLOCK_BYTES for entry in entries), shutil.disk_usage(folder).free
    if needed > free:
        raise SiteError(
            f"{folder.parent}: {free / 2**30:.2f} GiB are free, and the run takes {needed / 2**30:.2f} GiB: make room, "
            "collect into another file system, or leave checkpoints out (--checkpoints none)"
        )


def _mode(entry: SentEntry) -> int:
    return entry.mode & 0o777 & ~OTHERS_WRITE


def _fetch_missing(host: LoginHost, copy: dict[str, str], announced: Sequence[SentEntry], into: Below) -> None:
    """Fetch the announced files that are not here yet, in one stream. Raises LinkLost if that breaks."""
    files = [entry for entry in announced if entry.kind == "file" and not _is_here(entry, into)]
    if not files:
        return
    request = {"do": "fetch", **copy, "files": [entry.name for entry in files]}
    errors, whole = bytearray(), list[str]()
    with closing(_written(host, files, into, whole)) as writer:
        next(writer)
        code = call.call(host, request, writer.send, errors.extend, limits=COPIED)
    if code:
        raise SiteError(f"{host.address}: {errors.decode(errors='replace').strip().removeprefix('torusrun: ')}")
    if len(whole) < len(files):
        raise _wrong(host, files[len(whole)])


def _written(
    host: LoginHost, files: Sequence[SentEntry], into: Below, whole: list[str]
) -> Generator[None, bytes, None]:
    """Take the bytes of a stream, and write them into files, one after the other; the names of those that are `whole`.

    A file gets its name once it is whole. Raises SiteError for other bytes than those that were announced.
    """
    data = b""
    for entry in files:
        digest, missing_bytes = hashlib.sha256(), entry.size_bytes
        with into.unfinished(entry.name, new_part(), _mode(entry)) as file:
            while missing_bytes:
                data = data or (yield)
                piece, data = data[:missing_bytes], data[missing_bytes:]
                digest.update(piece)
                missing_bytes -= file.write(piece)
            if digest.hexdigest() != entry.sha256:
                raise _wrong(host, entry)
        whole.append(entry.name)
    while not data:
        data = yield
    raise _wrong(host, files[-1])


def _wrong(host: LoginHost, entry: SentEntry) -> SiteError:
    return SiteError(f"{host.address}: {entry.name} is not what was announced; collect the run again")
