"""Requests for a shell, one file each in a folder of the attempt. Only their user can read or write them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import read_object, write_json
from torusrun.orchestrator.base.typed import read_record

ENDING, FAILED = ".json", ".failed"
MEND = "nodes must reach this address, as for `qsub -I`; if the nodes have ssh, set remote_shell: ssh"


@dataclass(frozen=True)
class ShellRequest:
    """The program `argv` on `host`, which connects to `port` of one of `addresses` and knows the `secret` (hex).

    The user's machine has these addresses in its `network`. The program gets a terminal of `rows` and `columns`, none
    if they are 0.
    """

    host: str
    argv: tuple[str, ...]
    addresses: tuple[str, ...]
    network: str
    port: int
    secret: str
    rows: int
    columns: int

    @property
    def key(self) -> bytes:
        return bytes.fromhex(self.secret)

    @property
    def terminal(self) -> bool:
        return bool(self.rows and self.columns)

    def write(self, folder: Path) -> Path:
        """Write the request into `folder`; its file. Raises SiteError if that fails."""
        path = folder / f"{time.time_ns():020}-{os.getpid()}{ENDING}"
        write_json(path, {"schema": 2, **asdict(self)}, secret=True)
        return path


def read(path: Path) -> ShellRequest:
    """The request in `path`. Raises SiteError if it is gone, damaged, or not this user's."""
    if not private.is_mine(path) or not (request := read_record(path, ShellRequest)):
        raise SiteError(f"{path}: you have no such request")
    return request


def lying_in(folder: Path) -> list[Path]:
    """The files of the requests in a folder, oldest first; empty if it cannot be read now."""
    with contextlib.suppress(OSError):  # opened each time: over NFS that fetches new entries
        return sorted(path for path in folder.iterdir() if path.suffix == ENDING and not path.name.startswith("."))
    return []


def fail(path: Path, why: str) -> None:
    """Write why the request in `path` failed."""
    with contextlib.suppress(SiteError):
        write_json(path.with_suffix(FAILED), {"why": why})


def failure(path: Path) -> str:
    """Why the request in `path` failed; '' if it has not failed."""
    return str((read_object(path.with_suffix(FAILED)) or {}).get("why", ""))


@contextlib.contextmanager
def left(request: ShellRequest, folder: Path) -> Iterator[Path]:
    """Keep the request in `folder` for the context; its file."""
    path = request.write(folder)
    try:
        yield path
    finally:
        for file in (path, path.with_suffix(FAILED)):
            file.unlink(missing_ok=True)
