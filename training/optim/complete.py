"""An optimizer of any kind, with every method that a training calls."""

from __future__ import annotations

from typing import Any

from training.recipe.protocols import Optimizer

OPTIONAL = ("before_step", "step_part", "finish", "gather", "agree")


class Complete(Optimizer):
    """The optimizer `own`, with the protocol's methods for those that it lacks.

    `in_parts` says whether its `step_part` matches its `step`: not if a subclass overrides `step` alone.
    """

    def __init__(self, own: Optimizer) -> None:
        self.own = own
        for name in OPTIONAL:
            if hasattr(own, name):
                setattr(self, name, getattr(own, name))
        steps = (vars(kind) for kind in type(own).__mro__ if {"step", "step_part"} & vars(kind).keys())
        self.in_parts = "step_part" in next(steps, {})

    def step(self, rate: float) -> None:
        self.own.step(rate)

    def state_dict(self) -> dict[str, Any]:
        return self.own.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.own.load_state_dict(state)
