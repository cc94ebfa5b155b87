"""The last views of runs that are over, in one file: 10,000 of them are listed without reading their folders.

One line per run, newest last, after its checksum. The last field is for showing a run, the fields before it are for
selecting runs. A run is removed before it is resumed. The file is safe to delete.
"""

from __future__ import annotations

import contextlib
import functools
import os
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from torusrun.orchestrator.base import lock, private
from torusrun.orchestrator.base.errors import TorusrunError
from torusrun.orchestrator.keys.paths import state_folder
from torusrun.orchestrator.run.folder.run_folder import RunFolder

SCHEMA = b"torusrun's settled runs, schema 1"
LARGEST_BYTES = 512_000_000
MOST_UNUSED = 2.0  # lines per valid line; above this the file is rewritten
FEW = 1000
LOCK_S = 2.0  # a stopped process may hold the lock: then lines are added without it


class Settled(NamedTuple):
    """A run that is over.

    `made_ns` is the time of its link in the index, `submitted` the time of its newest submission (of time.time(); '' if
    unknown), `seen` the size and time of its ledger at that moment, and `text` its view as JSON. `text` is '' if only
    the end record was read: then the state, the site and the time of submission must not be used.
    """

    run_id: str
    made_ns: str
    folder: str
    state: str
    site: str
    submitted: str
    seen: str
    text: str

    @property
    def submitted_s(self) -> float | None:
        return float(self.submitted) if self.submitted else None

    @property
    def holds(self) -> bool:
        """Whether the run exists and its ledger is unchanged."""
        return self.seen != "" and self.seen == now(RunFolder(Path(self.folder)))


def now(run: RunFolder) -> str:
    """The current size and time of a run's ledger; '' without a ledger."""
    try:
        status = run.ledger.lstat()
    except OSError:
        return ""
    return f"{status.st_size}.{status.st_mtime_ns}"


def runs() -> Mapping[str, Settled]:
    """All kept runs by id, without unreadable lines."""
    try:
        path = _path()
        status = path.lstat()
    except (OSError, TorusrunError):
        return {}
    return _read(path, status.st_size, status.st_mtime_ns)


def keep(rows: Iterable[Settled]) -> None:
    """Add or replace runs that are over. If the file cannot be written, their folders are read again next time."""
    _append([_line(row) for row in rows if not any(char in field for field in row for char in "\t\n")])


def forget(run_ids: Collection[str]) -> None:
    """Remove runs that may continue. Raises nothing: a reader sees that their ledgers have changed."""
    known = runs()
    _append([_line([run_id]) for run_id in run_ids if run_id in known])


def _path() -> Path:
    return state_folder() / "settled.tsv"


@functools.lru_cache(maxsize=1)
def _read(path: Path, _size: int, _changed_ns: int) -> dict[str, Settled]:
    return _latest(_lines(path) or [])


def _lines(path: Path) -> list[str] | None:
    """The lines below the first; None if they are of another version or cannot be read."""
    try:
        content = private.read_bytes(path, LARGEST_BYTES)
    except OSError:
        return None
    head, _, lines = content.partition(b"\n")
    return lines.decode(errors="replace").split("\n")[:-1] if head == SCHEMA else None


def _latest(lines: Iterable[str]) -> dict[str, Settled]:
    rows: dict[str, Settled] = {}
    fields = len(Settled._fields)
    for line in lines:
        checksum, _, rest = line.partition("\t")
        if checksum != _checksum(rest):
            continue
        row = rest.split("\t", fields - 1)
        if len(row) == fields:
            rows[row[0]] = Settled._make(row)
        else:
            rows.pop(row[0], None)
    return rows


def _line(fields: Sequence[str]) -> str:
    text = "\t".join(fields)
    return f"{_checksum(text)}\t{text}"


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode(errors='replace')):08x}"


def _append(lines: list[str]) -> None:
    """Add lines, or rewrite the file if it is of another version or most lines are outdated."""
    if not lines:
        return
    with contextlib.suppress(OSError, TorusrunError):
        path = _path()
        private.make(path.parent)
        with lock.held(path.with_suffix(".lock"), wait_s=LOCK_S) as mine:
            before = _lines(path)
            every = [*(before or []), *lines]
            latest = _latest(every)
            if before is not None and (len(every) < FEW + MOST_UNUSED * len(latest) or mine is False):
                with open(private.open_regular(path, os.O_WRONLY | os.O_APPEND), "ab", buffering=0) as file:
                    file.write("".join(f"{line}\n" for line in lines).encode())
            else:
                text = "".join(f"{_line(row)}\n" for row in latest.values())
                private.write_bytes(path, SCHEMA + b"\n" + text.encode())
