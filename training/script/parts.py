"""What a checkpoint of a script has: parts whose tensors the ranks share, and parts that are alike on all ranks.

What is for shards alone is imported late: a script without them begins a second sooner.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves


class Stateful(Protocol):
    """A model, an optimizer, a schedule, a scaler, ..."""

    def state_dict(self) -> dict[str, Any]:
        """Tensors, numbers, texts, and lists, tuples and dicts of them."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any:
        """Continue from what `state_dict` returned; its tensors are on the CPU."""


class ScriptParts:
    """The parts of a script's state, by their names; those with DTensors in their states are `shared`.

    The state of an optimizer names parameters by their numbers, and PyTorch can give it to other ranks only by their
    names in a module. Raises ValueError for an optimizer with DTensors of no module.
    """

    def __init__(self, objects: dict[str, Stateful]) -> None:
        self._parts = objects
        self.shared = {name for name, part in objects.items() if _is_sharded(_tensors(part))}
        # As one module, because an optimizer may have parameters of several.
        modules = {f"{name}_": part for name, part in objects.items() if isinstance(part, nn.Module)}
        self._modules = nn.ModuleDict(modules if self.shared else {})
        known = {id(parameter) for parameter in self._modules.parameters()}
        for name in self.shared:
            if isinstance(part := objects[name], Optimizer) and {*map(id, _tensors(part))} - known:
                raise ValueError(f"{name}: name the module of its parameters too, as in Checkpoints(model=model, ...)")

    def plain(self) -> dict[str, Any]:
        """The states that are alike on all ranks."""
        return {name: part.state_dict() for name, part in self._parts.items() if name not in self.shared}

    def states(self) -> dict[str, dict[str, Any]]:
        """All states, those alike as `plain` and the others as `sharded`; all ranks call it together."""
        return {"plain": self.plain(), "sharded": {name: self._sharded(name) for name in sorted(self.shared)}}

    def load_plain(self, states: dict[str, Any]) -> None:
        for name, state in states.items():
            self._parts[name].load_state_dict(state)

    def load_shared(self, path: Path, sha256: str, group: dist.ProcessGroup | None) -> None:
        """Load from the checkpoint at `path`, whose `.metadata` has this checksum; all ranks call it together.

        Raises RefusedCheckpoint or ValueError.
        """
        from torch.distributed.checkpoint import state_dict

        from torusrun.training.checkpoint.shards import load_shards

        states = self.states()["sharded"]
        load_shards(path, sha256, states, group)
        for name, state in states.items():
            part = self._parts[name]
            if isinstance(part, nn.Module):
                state_dict.set_model_state_dict(part, state)
            elif isinstance(part, Optimizer):
                state_dict.set_optimizer_state_dict(self._modules, part, state)
            else:
                part.load_state_dict(state)

    def _sharded(self, name: str) -> dict[str, Any]:
        from torch.distributed.checkpoint import state_dict

        part = self._parts[name]
        if isinstance(part, nn.Module):
            return state_dict.get_model_state_dict(part)
        if not isinstance(part, Optimizer):
            return part.state_dict()
        fresh = not part.state
        state: dict[str, Any] = dict(state_dict.get_optimizer_state_dict(self._modules, part))
        if fresh:  # to have a state, PyTorch made a step with gradients and a rate of zero
            part.state.clear()
            for values in state["state"].values():
                values.update({key: _zero(value) for key, value in values.items() if key == "step"})
        return state


def _zero(value: Any) -> Any:
    return torch.zeros_like(value) if isinstance(value, torch.Tensor) else 0


def _is_sharded(state: Any) -> bool:
    """Whether nested dicts, lists and tuples have a DTensor."""
    module = sys.modules.get("torch.distributed.tensor")  # without it nobody has made a DTensor
    return module is not None and any(isinstance(leaf, module.DTensor) for leaf in tree_leaves(state))


def _tensors(part: Stateful) -> Any:
    """The state of a part; of an optimizer, which has no state before its first step, the parameters."""
    if not isinstance(part, Optimizer):
        return part.state_dict()
    return [parameter for group in part.param_groups for parameter in group["params"]]
