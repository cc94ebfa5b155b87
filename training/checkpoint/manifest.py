"""Complete checkpoints: folders `step-NNNNNNNN` whose files match their manifest in size and SHA-256."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCHEMA = 1
MANIFEST = "manifest.json"
TEMPORARY_PREFIX = ".tmp-"
_NAME = re.compile(r"step-(\d{8,})")


class IncompleteCheckpoint(ValueError):
    """The folder is no complete checkpoint; the message says why."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint: the state after `step` steps, at a fractional `epoch`, written by `attempt`."""

    path: Path
    step: int
    epoch: float
    attempt: int

    @property
    def name(self) -> str:
        return self.path.name


def name_of(step: int) -> str:
    """The folder name of the checkpoint after `step` steps."""
    return f"step-{step:08d}"


def step_of(path: Path) -> int | None:
    """The step that a folder name stands for; None when it is no checkpoint's name."""
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else None


def compose(step: int, epoch: float, attempt: int, files: dict[str, bytes]) -> dict[str, Any]:
    """The manifest of files given by name and content."""
    listing = {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()} for name, content in files.items()
    }
    return {"schema": SCHEMA, "step": step, "epoch": epoch, "attempt": attempt, "files": listing}


def verify(path: Path) -> Checkpoint:
    """Compare the checkpoint at `path` with its manifest; IncompleteCheckpoint says what differs."""
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        checkpoint = Checkpoint(path, int(manifest["step"]), float(manifest["epoch"]), int(manifest["attempt"]))
        listing = {name: (entry["bytes"], entry["sha256"]) for name, entry in manifest["files"].items()}
    except OSError as error:
        raise IncompleteCheckpoint(f"{path}: no manifest: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise IncompleteCheckpoint(f"{path}: the manifest does not parse: {error!r}") from error
    if manifest.get("schema") != SCHEMA or checkpoint.step != step_of(path) or not listing:
        raise IncompleteCheckpoint(f"{path}: the manifest belongs to something else")
    for name, expected in listing.items():
        _verify_file(path / name, *expected)
    return checkpoint


def complete_checkpoints(folder: Path) -> list[Checkpoint]:
    """All complete checkpoints in `folder`, the newest first; none when the folder does not exist."""
    return list(_complete(folder))


def newest_complete(folder: Path) -> Checkpoint | None:
    """The complete checkpoint with the highest step; newer torn ones are passed over."""
    return next(_complete(folder), None)


def _complete(folder: Path) -> Iterator[Checkpoint]:
    for path in candidates(folder):
        try:
            yield verify(path)
        except IncompleteCheckpoint:
            continue


def candidates(folder: Path) -> list[Path]:
    """Everything in `folder` with the name of a checkpoint, the newest first, complete or not."""
    if not folder.is_dir():
        return []
    named = [(step, path) for path in folder.iterdir() if (step := step_of(path)) is not None]
    return [path for _, path in sorted(named, reverse=True)]


def _verify_file(path: Path, size_bytes: int, sha256: str) -> None:
    digest = hashlib.sha256()
    try:
        found_bytes = path.stat().st_size
        if found_bytes != size_bytes:
            raise IncompleteCheckpoint(f"{path}: {found_bytes} bytes, the manifest says {size_bytes}")
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise IncompleteCheckpoint(f"{path}: cannot be read: {error.strerror}") from error
    if digest.hexdigest() != sha256:
        raise IncompleteCheckpoint(f"{path}: the content differs from its SHA-256 in the manifest")
