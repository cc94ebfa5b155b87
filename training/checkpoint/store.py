"""Writing checkpoints: complete or not there at all, the newest few kept."""

from __future__ import annotations

import io
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from training.checkpoint import manifest
from training.checkpoint.manifest import STATE
from training.files.trusted import sync_folder
from training.progress import Progress

KEEP = 3


class CheckpointFolder:
    """The checkpoints below `folder`, as the one process that writes them sees them.

    `newest` is the newest complete checkpoint. Opening removes what dead attempts left half-written. RuntimeError
    when the folder cannot be read, OtherSchema when all in it was written by another version: to take it for an empty
    one would begin the training anew.
    """

    def __init__(self, folder: Path, attempt: int) -> None:
        _check_readable(folder)
        _remove_leftovers(folder)
        complete = manifest.complete_checkpoints(folder)
        if not complete:
            manifest.refuse_other_schemas(folder)
        self.newest = complete[0] if complete else None
        self._steps = [checkpoint.step for checkpoint in complete]
        self._folder = folder
        self._attempt = attempt

    def save(self, state: dict[str, Any], *, progress: Progress, epoch: float) -> str:
        """Write the checkpoint at `progress`, then delete those older than the newest KEEP; returns its name.

        OSError means that nothing was added (disk full, quota, ...): the temporary folder is gone again.
        """
        name = manifest.name_of(progress.steps)
        temporary = self._folder / f"{manifest.TEMPORARY_PREFIX}{name}-{self._attempt}"
        try:
            self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            temporary.mkdir(mode=0o755, exist_ok=True)
            sha256 = _write_files(temporary, state, progress, epoch, self._attempt)
            _put_in_place(temporary, self._folder / name)
        except OSError:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        self.newest = manifest.Checkpoint(self._folder / name, progress, epoch, self._attempt, sha256)
        self._steps = [progress.steps, *self._steps][:KEEP]
        self._prune()
        return name

    def _prune(self) -> None:
        """Delete what is older than the newest KEEP complete ones; what resists is tried again next time."""
        if len(self._steps) < KEEP:
            return
        for path in manifest.candidates(self._folder):
            if (manifest.step_of(path.name) or 0) < self._steps[-1]:
                with suppress(OSError):
                    _discard(path)


def _check_readable(folder: Path) -> None:
    try:
        os.listdir(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RuntimeError(f"{folder}: cannot be read: {error.strerror}; mend that and resume the run") from error


def _remove_leftovers(folder: Path) -> None:
    """Delete what dead attempts left half-written or half-deleted."""
    for path in folder.glob(manifest.TEMPORARY_PREFIX + "*"):
        shutil.rmtree(path, ignore_errors=True)


def _write_files(folder: Path, state: dict[str, Any], progress: Progress, epoch: float, attempt: int) -> dict[str, str]:
    """Returns the checksums by file name."""
    # Through memory: torch's own file writer turns a full disk into a RuntimeError without a reason.
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getvalue()
    _write(folder / STATE, content)
    listing = manifest.compose(progress, epoch, attempt, {STATE: content})
    _write(folder / manifest.MANIFEST, json.dumps(listing).encode())
    sync_folder(folder)
    return {STATE: listing["files"][STATE]["sha256"]}


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _put_in_place(temporary: Path, final: Path) -> None:
    if final.exists():  # a torn one: a complete one of this step would have been resumed from
        _discard(final)
    temporary.rename(final)
    sync_folder(final.parent)


def _discard(path: Path) -> None:
    """Rename first: a death in between must not leave a checkpoint that lacks files."""
    doomed = path.with_name(f"{manifest.TEMPORARY_PREFIX}old-{path.name}")
    path.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)
