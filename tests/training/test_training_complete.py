"""An optimizer of a user's own gets the methods that it lacks, and steps in parts only if its parts make its step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from training.optim.complete import Complete
from training.optim.sgd import SGD
from training.progress import Moment


class Least:
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def step(self, rate: float) -> None:
        self.calls.append(rate)

    def state_dict(self) -> dict[str, Any]:
        return {"calls": len(self.calls)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.calls = [None] * state["calls"]


class InParts(Least):
    def step(self, rate: float) -> None:
        raise AssertionError

    def step_part(self, parameters: Sequence[nn.Parameter], rate: float) -> None:
        self.calls.append((len(parameters), rate))

    def finish(self) -> None:
        self.calls.append("finish")


class AnotherStep(SGD):
    def step(self, rate: float) -> None:
        super().step(2 * rate)


def test_what_it_lacks_does_nothing() -> None:
    own = Least()
    complete = Complete(own)
    complete.before_step(Moment(0.5, 0.5, 0.5, 0.0), 0.1)
    complete.gather()
    complete.finish()
    assert complete.agree(lambda here: here) is None and own.calls == []
    complete.step(0.5)
    complete.load_state_dict({"calls": 3})
    assert complete.state_dict() == {"calls": 3}


def test_what_it_has_is_called() -> None:
    own = InParts()
    complete = Complete(own)
    complete.step_part([], 0.5)
    complete.finish()
    assert complete.in_parts and own.calls == [(0, 0.5), "finish"]


def test_parts_are_left_to_the_class_whose_step_they_make() -> None:
    model = nn.Linear(2, 2)
    assert Complete(SGD(model, 0.9, 0.0)).in_parts
    assert not Complete(AnotherStep(model, 0.9, 0.0)).in_parts and not Complete(Least()).in_parts
