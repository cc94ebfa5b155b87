"""Reads a checkpoint that another rank has named: only if run, user and bytes are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from torusrun.training.checkpoint.manifest import STATE, step_of
from torusrun.training.files.checksum import of_stream
from torusrun.training.files.trusted import open_own

REFUSED = "nothing was loaded; see who can write there, and resume the run"


class RefusedCheckpoint(RuntimeError):
    """The checkpoint must not be loaded; the message says why."""


def load(folder: Path, name: str, sha256: str, device: torch.device) -> dict[str, Any]:
    """The state in the checkpoint `name` inside `folder`, with its tensors on `device`.

    Raises RefusedCheckpoint if `name` is not the name of a checkpoint, if it or its state is a symbolic link or belongs
    to another user, or if the state does not have the checksum `sha256`.
    """
    if step_of(name) is None:
        raise RefusedCheckpoint(f"{folder}: {name[:80]!r} is not the name of a checkpoint; {REFUSED}")
    path = folder / name / STATE
    try:
        with open(open_own(path), "rb") as file:
            if of_stream(file) != sha256:
                raise RefusedCheckpoint(f"{path}: this is not the content that rank 0 has verified; {REFUSED}")
            file.seek(0)
            state: dict[str, Any] = torch.load(file, map_location=device, weights_only=True)
            return state
    except OSError as error:
        raise RefusedCheckpoint(f"{path}: cannot be read: {error.strerror}; {REFUSED}") from error
