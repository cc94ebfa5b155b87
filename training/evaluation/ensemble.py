"""The collapsed ensemble: short branches off one training; the weights at their ends are its members.

Source: Codreanu et al. 2017, arXiv 1711.04291 (abstract and released solvers verified). A phase with `collapse` is a
branch: its rates fall to the end, its weights become a member, and the training continues from before the branch. The
ensemble's answer is the mean of its members' softmax outputs (`training.evaluation.evaluate`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from torusrun.training.recipe.protocols import Optimizer
from torusrun.training.schedule.phases import Phase


class Members:
    """The members so far, as states of `model`, and the state to which the training returns after a branch.

    They are in the host's memory on every rank, and in checkpoints: a copy of the weights for each member (102 MB for
    ResNet-50), and within a branch one more, with the optimizer's state (204 MB with momentum). `before_keeping` is
    called on all ranks before weights are kept: after it all ranks must hold the same weights.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, before_keeping: Callable[[], None]) -> None:
        self._model, self._optimizer, self._before_keeping = model, optimizer, before_keeping
        self._start: dict[str, Any] | None = None  # of the branch that the training is in
        self.states: list[dict[str, Tensor]] = []

    def at_phase(self, before: Phase | None, after: Phase | None) -> None:
        """Begin or end a branch between two phases; all ranks call it together.

        None is before the first phase or after the last. The training does not return from a branch in its last phase.
        """
        if before and before.collapse:
            self._before_keeping()
            self.states.append(_kept(self._model.state_dict()))
            if after and self._start:
                self._model.load_state_dict(self._start["model"])
                self._optimizer.load_state_dict(self._start["optimizer"])
            self._start = None
        if after and after.collapse:
            self._before_keeping()
            self._optimizer.gather()
            self._start = {
                "model": _kept(self._model.state_dict()),
                "optimizer": _kept(self._optimizer.state_dict()),
            }

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint; empty if nothing is kept."""
        return {"members": self.states, "start": self._start} if self.states or self._start else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.states, self._start = list(state.get("members", [])), state.get("start")


def _kept(state: Any) -> Any:
    """A copy of nested dicts and lists, with their tensors in the host's memory."""
    if isinstance(state, Tensor):
        return state.detach().to("cpu", copy=True)
    if isinstance(state, dict):
        return {name: _kept(value) for name, value in state.items()}
    return [_kept(value) for value in state] if isinstance(state, (list, tuple)) else state
