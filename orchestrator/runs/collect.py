"""A run copied out of its folder: logs, metrics and a verified checkpoint, whole or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

from orchestrator.errors import SiteError, UserError
from orchestrator.runs.folder import RunFolder
from training.checkpoint.manifest import Checkpoint, IncompleteCheckpoint, complete_checkpoints, verify

CHOICES = ("newest", "all", "none")


def collect(run: RunFolder, into: Path, checkpoints: str) -> Path:
    """Copy a run into the new folder `into`; `checkpoints` is one of CHOICES. Torn checkpoints stay behind.

    Raises UserError when `into` exists, SiteError when a copy fails or a copied checkpoint does not match its manifest.
    """
    into = into.expanduser().absolute()
    if into.exists():
        raise UserError(f"{into} exists already; name a new folder")
    partial = into.with_name(f".{into.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        into.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(run.folder, partial, ignore=shutil.ignore_patterns("checkpoints", "submitit", ".*"))
        for checkpoint in _chosen(run, checkpoints):
            _copy(checkpoint, partial / "checkpoints" / checkpoint.path.name)
        partial.rename(into)
    except (OSError, shutil.Error, IncompleteCheckpoint) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise SiteError(f"{into}: the run could not be collected: {error}") from None
    return into


def _chosen(run: RunFolder, which: str) -> list[Checkpoint]:
    if which == "none":
        return []
    complete = complete_checkpoints(run.checkpoints)
    return complete[:1] if which == "newest" else complete


def _copy(checkpoint: Checkpoint, to: Path) -> None:
    shutil.copytree(checkpoint.path, to)
    verify(to)
