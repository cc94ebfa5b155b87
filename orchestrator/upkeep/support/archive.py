"""Makes the archive of a run. Only files of a list are in it, each without secrets.

Never in it: the launch order and the configuration (they have variables and the attempt's token), the run file, the
code, its changes, checkpoints, and requests for shells.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.json_files import parsed, read_object
from torusrun.orchestrator.base.private import read_bytes
from torusrun.orchestrator.base.version import __version__
from torusrun.orchestrator.base.whole_lines import last_lines
from torusrun.orchestrator.run.folder import kept_secrets
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.folder.without_secrets import Cleaner, secret_variables, variables_of

TAIL_BYTES = 1 << 16  # of each output
MOST_BYTES = 20_000_000  # of all files; the newest attempts come first
LARGEST_RECORD = 4_000_000


@dataclass(frozen=True)
class Packed:
    """A file of the archive, and a note about it."""

    name: str
    size: int
    note: str = ""


def archive(run: RunFolder, into: Path) -> list[Packed]:
    """Write the archive of a run into the new file `into`, which only its user can read; what is in it.

    Raises UserError if `into` exists, SiteError if it cannot be written.
    """
    cleaner = Cleaner({*_variables(run), *secret_variables(os.environ)})
    try:
        descriptor = os.open(into, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise UserError(f"{into} exists already; remove it, or name another file") from None
    except OSError as error:
        raise SiteError(f"{into}: cannot be written: {error.strerror}") from None
    packed: list[Packed] = []
    try:
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as made:
            for name, content, note in _files(run, cleaner):
                if sum(one.size for one in packed) + len(content) > MOST_BYTES:
                    packed.append(Packed(name, 0, "left out: the archive would be too large"))
                    continue
                _add(made, f"{into.name.removesuffix('.tar.gz')}/{name}", content)
                packed.append(Packed(name, len(content), note))
    except BaseException as error:
        into.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise SiteError(f"{into}: cannot be written: {error.strerror}") from None
        raise
    return packed


def _add(made: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
    made.addfile(entry, io.BytesIO(content))


def _variables(run: RunFolder) -> Iterator[tuple[str, str]]:
    """The variables in all records of the run, also in those that are left out."""
    for path in (run.plan, *(path for attempt in _attempts(run) for path in (attempt.plan, attempt.config))):
        yield from variables_of(_record(path))
    with contextlib.suppress(SiteError):
        yield from kept_secrets.all_of(run).items()


def _attempts(run: RunFolder) -> list[Attempt]:
    """The attempts of a run, newest first."""
    try:
        numbers = [int(path.name) for path in run.attempts.iterdir() if path.name.isdecimal()]
    except OSError:
        return []
    return [run.attempt(number) for number in sorted(numbers, reverse=True)]


def _files(run: RunFolder, cleaner: Cleaner) -> Iterator[tuple[str, bytes, str]]:
    """(name, content, note) of every file."""
    versions = {"torusrun": __version__, "python": platform.python_version(), "machine": platform.platform()}
    yield "versions.json", _json(versions), "this machine's"
    site = _record(run.plan).get("site", {})
    yield "site.json", _json(cleaner.value(site)), "the site as the run has it"
    for path in (run.ledger, run.plan, run.provenance, run.image, run.hold, run.code_record):
        yield from _one(run, path, cleaner)
    yield from _one(run, run.metrics, cleaner)
    for attempt in _attempts(run):
        records = (attempt.plan, attempt.placement, attempt.preflight, attempt.end, attempt.keeper, attempt.in_job)
        of_jobs = (attempt.jobs_stdout, attempt.jobs_stderr)
        outputs = (attempt.stdout, attempt.stderr, *of_jobs, attempt.preflight_output)
        scripts = (attempt.script, attempt.hostfile)
        ranks = (*sorted(attempt.ranks.glob("*.json")), *sorted(attempt.logs.glob("rank-*.log")))
        for path in (*records, *outputs, *scripts, *ranks):
            yield from _one(run, path, cleaner)


def _one(run: RunFolder, path: Path, cleaner: Cleaner) -> Iterator[tuple[str, bytes, str]]:
    """A file of the run without secrets; nothing if there is none, a note if it cannot be read."""
    name = str(path.relative_to(run.folder))
    try:
        if path.suffix == ".json":
            yield name, _json(cleaner.value(parsed(read_bytes(path, LARGEST_RECORD)))), ""
            return
        lines, rest = last_lines(path, TAIL_BYTES)
        whole = path.lstat().st_size <= TAIL_BYTES
        rest = rest if lines or whole else b""  # else it may begin within a secret
        text = b"\n".join([*lines, rest]).decode(errors="replace")
        clean = _lines(text, cleaner) if path.suffix == ".jsonl" else cleaner.text(text)
        yield name, clean.encode(), "" if whole else "its last lines"
    except FileNotFoundError:
        return
    except NotADirectoryError as error:
        yield name, b"", f"left out: a folder above it: {error.strerror}"
    except ValueError:
        yield name, b"", "left out: it is damaged"
    except OSError as error:
        yield name, b"", f"left out: {error.strerror}"


def _record(path: Path) -> dict[str, Any]:
    """The record in a file; {} if there is none, or if it is damaged."""
    try:
        return read_object(path) or {}
    except SiteError:
        return {}


def _lines(text: str, cleaner: Cleaner) -> str:
    """JSON lines without secrets; a line that is no JSON is cleaned as text."""
    return "\n".join(_line(line, cleaner) for line in text.split("\n"))


def _line(line: str, cleaner: Cleaner) -> str:
    try:
        return json.dumps(cleaner.value(parsed(line.encode()))) if line else line
    except ValueError:
        return cleaner.text(line)


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode() + b"\n"
