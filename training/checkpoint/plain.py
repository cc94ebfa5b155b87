"""Whether a state can be saved and loaded again: it may have no types that `torch.load(weights_only=True)` refuses."""

from __future__ import annotations

import io
import re
from typing import Any

import torch
from torch import Tensor

from torusrun.training.checkpoint.snapshot import without_numbers
from torusrun.training.recipe.reading import ConfigError


class Plain:
    """Checks states by the types in them; those of states that it has found good cost no second check."""

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
    found: set[object] = {type(state)}
    if isinstance(state, Tensor):
        found.add(state.layout)
    if isinstance(state, dict):
        found.update(map(type, state))
    if isinstance(state, (dict, list, tuple)):
        found.update(*map(_kinds, state.values() if isinstance(state, dict) else state))
    return found


def _check(name: str, state: Any) -> None:
    file = io.BytesIO()
    try:
        torch.save(without_numbers(state), file)
        file.seek(0)
        torch.load(file, weights_only=True)
    except Exception as error:  # of several kinds, one of them from pickle
        kind = re.search(r"GLOBAL (\S+)", str(error))
        what = kind[1] if kind else str(error).partition("\n")[0][:200] or type(error).__name__
        plain = "it may have only tensors, numbers, texts, lists, tuples and dicts"
        raise ConfigError(f"{name}: its state_dict() could not be loaded again: {what}; {plain}") from None
