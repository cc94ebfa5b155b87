"""Complete checkpoints: folders `step-NNNNNNNN` whose files match their manifest in size and SHA-256.

Files may be damaged, or be those of another user. Whatever is not complete raises IncompleteCheckpoint.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torusrun.training.files.trusted import BLOCK_BYTES, open_folder, open_regular, refuse_holes
from torusrun.training.progress import Progress

SCHEMA = 2
MANIFEST = "manifest.json"
STATE = "state.pt"
METADATA = ".metadata"  # of torch.distributed.checkpoint, in a checkpoint of shards
LARGEST_MANIFEST_BYTES = 1_000_000
VERIFIED_AT_ONCE = 8  # files
TEMPORARY_PREFIX = ".tmp-"
_NAME = re.compile(r"step-([0-9]{8,18})")
_FILE_NAME = re.compile(r"\.?[A-Za-z0-9_][A-Za-z0-9._-]{0,254}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class IncompleteCheckpoint(ValueError):
    """The folder is not a complete checkpoint; the message says why."""


class OtherSchema(IncompleteCheckpoint):
    """The folder is a checkpoint of another version of torusrun."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint: the state at `progress`, at a fractional `epoch`, written by `attempt`.

    `sizes_bytes` and `sha256` map the name of every file to its size and checksum. `accuracy` is None if it was not
    evaluated.
    """

    path: Path
    progress: Progress
    epoch: float
    attempt: int
    sizes_bytes: dict[str, int]
    sha256: dict[str, str]
    accuracy: float | None = None

    @property
    def step(self) -> int:
        return self.progress.steps

    @property
    def name(self) -> str:
        return self.path.name


def name_of(step: int) -> str:
    """The folder name of the checkpoint after `step` steps."""
    return f"step-{step:08d}"


def step_of(name: str) -> int | None:
    """The step in the name of a checkpoint's folder; None for another name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match and name_of(int(match[1])) == name else None


def compose(progress: Progress, epoch: float, attempt: int, files: dict[str, bytes]) -> dict[str, Any]:
    """The manifest of `files`, which map names to contents."""
    listed = {name: (len(content), hashlib.sha256(content).hexdigest()) for name, content in files.items()}
    return of_files(progress, epoch, attempt, listed)


def of_files(
    progress: Progress, epoch: float, attempt: int, files: dict[str, tuple[int, str]], accuracy: float | None = None
) -> dict[str, Any]:
    """The manifest of `files`, which map names to (size in bytes, SHA-256); the `accuracy` is left out if unknown."""
    listing = {name: {"bytes": size_bytes, "sha256": sha256} for name, (size_bytes, sha256) in files.items()}
    counted = {"step": progress.steps, "samples": progress.samples, "epoch": epoch}
    evaluated = {} if accuracy is None else {"accuracy": accuracy}
    return {"schema": SCHEMA, **counted, **evaluated, "attempt": attempt, "files": listing}


def verify(path: Path, contents: bool = True) -> Checkpoint:
    """Compare the checkpoint at `path` with its manifest. Raises IncompleteCheckpoint with the difference.

    Without `contents` only the sizes of the files are compared.
    """
    try:
        folder = open_folder(path)
    except (OSError, ValueError) as error:
        raise IncompleteCheckpoint(f"{path}: no folder to read: {_reason(error)}") from error
    try:
        checkpoint = _parsed(path, _read_manifest(path, folder))

        def check(name: str) -> None:
            sha256 = checkpoint.sha256[name] if contents else None
            _verify_file(path / name, folder, checkpoint.sizes_bytes[name], sha256)

        if contents and len(checkpoint.sha256) > 1:  # of several ranks; hashing does not hold the interpreter's lock
            from concurrent.futures import ThreadPoolExecutor  # late: not for the login node

            with ThreadPoolExecutor(VERIFIED_AT_ONCE) as threads:
                list(threads.map(check, checkpoint.sha256))
        else:
            for name in checkpoint.sha256:
                check(name)
    finally:
        os.close(folder)
    return checkpoint


def complete_checkpoints(folder: Path) -> Iterator[Checkpoint]:
    """All complete checkpoints in `folder`, the newest first; none if the folder does not exist."""
    for path in candidates(folder):
        with suppress(IncompleteCheckpoint):
            yield verify(path)


def newest_complete(folder: Path) -> Checkpoint | None:
    """The complete checkpoint with the highest step; newer incomplete checkpoints are skipped."""
    return next(complete_checkpoints(folder), None)


def with_older(newest: Checkpoint) -> Iterator[Checkpoint]:
    """`newest` and the older checkpoints beside it; of these only the manifest and the sizes of files are read."""
    yield newest
    for path in candidates(newest.path.parent):
        if (step_of(path.name) or 0) < newest.step:
            with suppress(IncompleteCheckpoint):
                yield verify(path, contents=False)


def refuse_other_schemas(folder: Path) -> None:
    """Raises OtherSchema if another version of torusrun wrote a checkpoint in `folder`."""
    for path in candidates(folder):
        try:
            verify(path, contents=False)
        except OtherSchema:
            raise
        except IncompleteCheckpoint:
            continue


def candidates(folder: Path) -> list[Path]:
    """Everything in `folder` with the name of a checkpoint, the newest first, complete or not.

    Empty if `folder` is missing, is not a folder or cannot be read.
    """
    try:
        names = os.listdir(folder)
    except (OSError, ValueError):
        return []
    named = [(step, name) for name in names if (step := step_of(name)) is not None]
    return [folder / name for _, name in sorted(named, reverse=True)]


def _read_manifest(path: Path, folder: int) -> bytes:
    try:
        with open(open_regular(MANIFEST, folder=folder), "rb") as file:
            content = file.read(LARGEST_MANIFEST_BYTES + 1)
    except OSError as error:
        raise IncompleteCheckpoint(f"{path}: no manifest: {_reason(error)}") from error
    if len(content) > LARGEST_MANIFEST_BYTES:
        raise IncompleteCheckpoint(f"{path}: the manifest is larger than {LARGEST_MANIFEST_BYTES} bytes")
    return content


def _parsed(path: Path, content: bytes) -> Checkpoint:
    """The checkpoint in the manifest's words."""
    try:
        manifest = json.loads(content.decode())
        _check_schema(path, manifest["schema"])
        step, samples, epoch, attempt = (manifest[key] for key in ("step", "samples", "epoch", "attempt"))
        listing = manifest["files"]
        sizes_bytes = {name: entry["bytes"] for name, entry in listing.items()}
        sha256 = {name: entry["sha256"] for name, entry in listing.items()}
        accuracy = manifest.get("accuracy", 0.0)
        claims = [_whole(step), _whole(samples), _finite(epoch), _whole(attempt), _finite(accuracy)]
    except OtherSchema:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise IncompleteCheckpoint(f"{path}: the manifest cannot be parsed: {_reason(error)}") from error
    if not all(claims) or step != step_of(path.name) or not listing:
        raise IncompleteCheckpoint(f"{path}: the manifest belongs to something else")
    for name in listing:
        if not _FILE_NAME.fullmatch(name):
            raise IncompleteCheckpoint(f"{path}: the manifest lists {name[:80]!r}, which is not a plain file name")
        if not _whole(sizes_bytes[name]):
            raise IncompleteCheckpoint(f"{path}: the manifest gives {name} no size in bytes")
        if not (isinstance(sha256[name], str) and _SHA256.fullmatch(sha256[name])):
            raise IncompleteCheckpoint(f"{path}: the manifest gives {name} no SHA-256")
    evaluated = float(accuracy) if "accuracy" in manifest else None
    return Checkpoint(path, Progress(step, samples), float(epoch), attempt, sizes_bytes, sha256, evaluated)


def _check_schema(path: Path, schema: object) -> None:
    if not _whole(schema):
        raise ValueError("its schema is not a number")
    if schema != SCHEMA:
        raise OtherSchema(
            f"{path}: this checkpoint has schema {str(schema)[:20]}, and this torusrun reads schema {SCHEMA}; "
            "end the run with the torusrun that began it, or submit it as a new run"
        )


def _whole(value: object) -> bool:
    return type(value) is int and value >= 0


def _finite(value: object) -> bool:
    """Whether `value` is not negative and fits a float: `float` raises for integers above its largest number."""
    return isinstance(value, (int, float)) and type(value) is not bool and 0 <= value <= sys.float_info.max


def _verify_file(path: Path, folder: int, size_bytes: int, sha256: str | None) -> None:
    """Compare the size of a file, and its content if `sha256` is given."""
    digest = hashlib.sha256()
    try:
        with open(open_regular(path.name, folder=folder), "rb") as file:
            held_bytes = os.fstat(file.fileno()).st_size
            if held_bytes != size_bytes:
                raise IncompleteCheckpoint(f"{path}: {held_bytes} bytes, the manifest says {size_bytes}")
            if sha256 is None:
                return
            refuse_holes(file.fileno())
            while size_bytes > 0 and (block := file.read(min(size_bytes, BLOCK_BYTES))):
                digest.update(block)
                size_bytes -= len(block)
    except OSError as error:
        raise IncompleteCheckpoint(f"{path}: cannot be read: {_reason(error)}") from error
    if digest.hexdigest() != sha256:
        raise IncompleteCheckpoint(f"{path}: the content differs from its SHA-256 in the manifest")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {error}"[:200]
