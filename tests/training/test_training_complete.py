"""An optimizer of a user's own gets the methods that it lacks, and steps in parts only if its parts make its step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from torch import nn

from torusrun.training.optim.sgd import SGD
from torusrun.training.progress import Moment
from torusrun.training.recipe.protocols import DataSet, Optimizer, complete
from torusrun.training.step.mean_gradient import steps_in_parts


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
    whole: Optimizer = complete(own, Optimizer)
    whole.before_step(Moment(0.5, 0.5, 0.5, 0.0), 0.1)
    whole.finish()
    assert whole.agree(lambda here: here) is None and own.calls == []
    whole.step(0.5)
    whole.load_state_dict({"calls": 3})
    assert whole.state_dict() == {"calls": 3}


def test_what_it_has_is_called() -> None:
    own = InParts()
    whole: Optimizer = complete(own, Optimizer)
    whole.step_part([], 0.5)
    whole.finish()
    assert steps_in_parts(own) and own.calls == [(0, 0.5), "finish"]


class HeldOut:
    """A data set with its own identity and no methods but one."""

    identity = "own"

    def test_shard(self, rank: int, world: int) -> tuple[int, int]:
        return rank, world


class WithoutAnnouncements(HeldOut):
    prefetch = None


@pytest.mark.parametrize("kind", [HeldOut, WithoutAnnouncements])
def test_a_data_set_gets_what_it_lacks(kind: type[HeldOut]) -> None:
    whole: DataSet = complete(kind(), DataSet)
    whole.use(3)
    whole.prefetch([(0, 1)])
    assert whole.identity == "own" and whole.problems() == [] and list(whole.test_batches(1, 2)) == [(1, 2)]


def test_parts_are_left_to_the_class_whose_step_they_make() -> None:
    model = nn.Linear(2, 2)
    assert steps_in_parts(SGD(model, 0.9, 0.0))
    assert not steps_in_parts(AnotherStep(model, 0.9, 0.0)) and not steps_in_parts(Least())
