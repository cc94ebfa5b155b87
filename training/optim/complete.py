"""An optimizer of any make, with every method that a training calls."""

from __future__ import annotations

from typing import Any

from training.recipe.protocols import Optimizer

METHODS = [name for name in vars(Optimizer) if not name.startswith("_")]


class Complete(Optimizer):
    """The methods of `own`, and the protocol's for those that it lacks.

    `in_parts` says whether it has a `step_part` that goes with its `step`: not if a subclass has a `step` of its own.
    """

    def __init__(self, own: Any) -> None:
        self.own = own
        for name in METHODS:
            if hasattr(own, name):
                setattr(self, name, getattr(own, name))
        steps = (vars(kind) for kind in type(own).__mro__ if {"step", "step_part"} & vars(kind).keys())
        self.in_parts = "step_part" in next(steps, {})
