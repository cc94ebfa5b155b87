"""Whether a state can be saved and loaded again, and the loading of a checkpoint that another rank has named.

A state may have no types that `torch.load(weights_only=True)` refuses. A checkpoint is loaded only if run, user and
bytes are the same.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torusrun.training.checkpoint.manifest import STATE, step_of
from torusrun.training.checkpoint.snapshot import parts_of, tensors_of, with_tensors
from torusrun.training.files.trusted import of_stream, open_own
from torusrun.training.recipe.reading import ConfigError


class Plain:
    """Checks states by the types in them; types that were good cost no second check."""

    def __init__(self) -> None:
        self._good: set[object] = set()

    def check(self, states: dict[str, Any]) -> None:
        """Raises ConfigError for a state that could not be saved, or not loaded again, with its name."""
        if not (kinds := _kinds(states)) <= self._good:
            for name, state in states.items():
                _check(name, state)
            self._good |= kinds


def _kinds(state: Any) -> set[object]:
    """The types of all values and keys in a state, and the layouts of its tensors."""
    kinds: set[object] = set()
    for part in parts_of(state):
        kinds.add(type(part))
        if isinstance(part, Tensor):
            kinds.add(part.layout)
        if isinstance(part, dict):
            kinds.update(map(type, part))
    return kinds


def _check(name: str, state: Any) -> None:
    file = io.BytesIO()
    try:
        torch.save(without_numbers(state), file)
        file.seek(0)
        torch.load(file, weights_only=True)
    except Exception as error:  # of several kinds, also from pickle
        kind = re.search(r"GLOBAL (\S+)", str(error))
        what = kind[1] if kind else str(error).partition("\n")[0][:200] or type(error).__name__
        plain = "it may have only tensors, numbers, texts, lists, tuples and dicts"
        raise ConfigError(f"{name}: its state_dict() could not be loaded again: {what}; {plain}") from None


def without_numbers(state: Any) -> Any:
    """The same state with empty tensors. Raises TypeError for those that `Snapshot` cannot copy: DTensors, sparse."""
    if layouts := {part.layout for part in parts_of(state) if isinstance(part, Tensor)} - {torch.strided}:
        raise TypeError(f"it has a tensor with the layout {layouts.pop()}")
    return with_tensors(state, map(_empty, tensors_of(state)))


def _empty(tensor: Tensor) -> Tensor:
    if type(tensor) not in (Tensor, torch.nn.Parameter):
        raise TypeError(f"it has a {type(tensor).__name__}")
    return tensor.new_empty(0)


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
