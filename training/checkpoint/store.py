"""Writes checkpoints: each is complete or absent, and the newest few are kept."""

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
from training.files.trusted import put, sync_folder
from training.progress import Progress

KEEP = 3
MODE = 0o666  # of files, less the umask


class CheckpointFolder:
    """The checkpoints below `folder`, for the one process that writes them.

    `newest` is the newest complete checkpoint. Opening removes incomplete files of dead attempts. Raises RuntimeError
    if the folder cannot be read, and OtherSchema if another version wrote everything in it: without these errors the
    training would begin anew.
    """

    def __init__(self, folder: Path, attempt: int) -> None:
        _check_readable(folder)
        _remove_leftovers(folder)
        complete = list(manifest.complete_checkpoints(folder))
        if not complete:
            manifest.refuse_other_schemas(folder)
        self.newest = complete[0] if complete else None
        self._steps = [checkpoint.step for checkpoint in complete]
        self._folder = folder
        self._attempt = attempt

    def save(self, state: dict[str, Any], *, progress: Progress, epoch: float) -> str:
        """Write the checkpoint at `progress`, then delete those older than the newest KEEP; returns its name.

        Raises OSError if nothing was added (disk full, quota, ...): the temporary folder is removed then.
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
        """Delete checkpoints older than the newest KEEP complete ones; a failed deletion is tried again next time."""
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
    """Delete the half-written and half-deleted checkpoints of dead attempts."""
    for path in folder.glob(manifest.TEMPORARY_PREFIX + "*"):
        shutil.rmtree(path, ignore_errors=True)


def _write_files(folder: Path, state: dict[str, Any], progress: Progress, epoch: float, attempt: int) -> dict[str, str]:
    """Write the files of a checkpoint; returns their checksums by name."""
    # Through memory: torch's own file writer turns a full disk into a RuntimeError without a reason.
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getvalue()
    put(folder / STATE, content, MODE)
    listing = manifest.compose(progress, epoch, attempt, {STATE: content})
    put(folder / manifest.MANIFEST, json.dumps(listing).encode(), MODE)
    return {STATE: listing["files"][STATE]["sha256"]}


def _put_in_place(temporary: Path, final: Path) -> None:
    if final.exists():  # an incomplete one: from a complete one of this step the run would have resumed
        _discard(final)
    temporary.rename(final)
    sync_folder(final.parent)


def _discard(path: Path) -> None:
    """Delete a checkpoint. It is renamed first: a death in between must not leave a checkpoint that lacks files."""
    doomed = path.with_name(f"{manifest.TEMPORARY_PREFIX}old-{path.name}")
    path.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)
