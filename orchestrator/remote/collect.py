"""Collect a run from a login node: a copy is made and verified there, fetched file by file, and verified here."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from pathlib import Path

from orchestrator.errors import SiteError, UserError
from orchestrator.private import OTHERS_WRITE, open_regular
from orchestrator.remote import asking
from orchestrator.remote.known import Known
from orchestrator.remote.session import Lasting
from orchestrator.remote.there.sent import SentEntry, checksum
from orchestrator.remote.verbs import PATIENCE_S
from orchestrator.runs.collect import give_name
from orchestrator.spec.paths import absolute


def collect(run: Known, into: Path, checkpoints: str) -> Path:
    """Copy a run into the new folder `into`, whole or not at all; `checkpoints` as `torusrun collect` has it.

    Raises UserError when `into` exists, SiteError when the copy fails.
    """
    into = absolute(into)
    if os.path.lexists(into):
        raise UserError(f"{into} exists already; name a new folder")
    into.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".torusrun-", dir=into.parent))
    name = f"collect-{secrets.token_hex(12)}"
    try:
        with Lasting(run.host, PATIENCE_S) as link:
            request = {"do": "collect", "run": run.run, "checkpoints": checkpoints}
            entries = [SentEntry(**values) for values in asking.answer(link, request, name)["entries"]]
            for entry in entries:
                _fetch(link, name, entry, partial)
            link.ask({"ask": "forget", "call": name})
        give_name(partial, into)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise SiteError(f"{into}: the run could not be collected: {where}{error.strerror}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return into


def _fetch(link: Lasting, call: str, entry: SentEntry, into: Path) -> None:
    """One file or folder. Raises SiteError unless it is what was listed."""
    path = into / entry.name
    if ".." in Path(entry.name).parts or not path.parent.resolve().is_relative_to(into.resolve()):
        raise SiteError(f"{entry.name}: this name is not below the run")
    if entry.kind == "folder":
        return path.mkdir(mode=entry.mode & 0o777 & ~OTHERS_WRITE | 0o700)
    with open(
        open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, entry.mode & 0o777 & ~OTHERS_WRITE), "wb"
    ) as file:
        at = 0
        while at < entry.size_bytes:
            _, data = link.ask({"ask": "fetch", "call": call, "file": entry.name, "at": at})
            if not data:
                break
            at += file.write(data)
    if checksum(path) != entry.sha256:
        raise SiteError(f"{entry.name} arrived damaged; collect the run again")
