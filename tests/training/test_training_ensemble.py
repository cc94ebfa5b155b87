"""Branches of a training become members of an ensemble, and the training goes on as if they had not been."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from torusrun.training.evaluation import Members
from torusrun.training.optim.sgd import SGD


class Part(NamedTuple):
    """A phase of some steps."""

    steps: int
    collapse: bool


TRUNK, BRANCH = Part(2, False), Part(3, True)


class Training:
    """SGD on random batches, each a function of its step's number."""

    def __init__(self, parts: list[Part]) -> None:
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
        self.optimizer = SGD(self.model, 0.9, 1e-4)
        self.kept = 0
        self.members = Members(self.model, self.optimizer, self._keep)
        self.parts, self.steps = parts, 0

    def run(self, until: int | None = None) -> Training:
        """From the step that it has reached to `until`, or to its end."""
        ends = [sum(part.steps for part in self.parts[: n + 1]) for n in range(len(self.parts))]
        if self.steps == 0:
            self.members.at_phase(None, self.parts[0])
        while self.steps < (ends[-1] if until is None else until):
            draw = torch.Generator().manual_seed(self.steps)
            inputs, labels = torch.randn(8, 4, generator=draw), torch.randint(3, (8,), generator=draw)
            self.model.zero_grad()
            functional.cross_entropy(self.model(inputs), labels).backward()
            self.optimizer.step(0.1)
            self.steps += 1
            if self.steps in ends:
                at = ends.index(self.steps)
                self.members.at_phase(self.parts[at], self.parts[at + 1] if at + 1 < len(ends) else None)
        return self

    def skip(self, steps: int) -> Training:
        """Leave out some steps."""
        self.steps += steps
        return self

    def state(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "members": self.members.state_dict(),
        }

    def resumed(self) -> Training:
        """Another one, from a checkpoint of this one."""
        file = io.BytesIO()
        torch.save(self.state(), file)
        file.seek(0)
        state, other = torch.load(file, weights_only=True), Training(self.parts)
        other.steps = state["steps"]
        other.model.load_state_dict(state["model"])
        other.optimizer.load_state_dict(state["optimizer"])
        other.members.load_state_dict(state["members"])
        return other

    def _keep(self) -> None:
        self.kept += 1


def bits(state: Any) -> Any:
    """Tensors as lists, for comparisons."""
    if isinstance(state, Tensor):
        return state.tolist()
    if isinstance(state, dict):
        return {name: bits(value) for name, value in state.items()}
    return [bits(value) for value in state] if isinstance(state, list) else state


def test_after_a_branch_model_and_optimizer_are_what_they_were_before_it() -> None:
    branched = Training([TRUNK, BRANCH, TRUNK]).run()
    straight = Training([TRUNK, Part(BRANCH.steps, False), TRUNK]).run(TRUNK.steps).skip(BRANCH.steps).run()
    for name in ("model", "optimizer"):
        assert bits(branched.state()[name]) == bits(straight.state()[name])
    assert branched.kept == 2, "ranks are told before weights are kept: at the start and at the end of the branch"


def test_the_end_of_a_branch_is_a_member_with_its_statistics() -> None:
    branched = Training([TRUNK, BRANCH, TRUNK, BRANCH, BRANCH]).run()
    ended = Training([TRUNK, Part(BRANCH.steps, False)]).run()
    first, second, third = branched.members.states
    assert bits(first) == bits(ended.model.state_dict())
    assert len({str(bits(state)) for state in (first, second, third)}) == 3
    assert bits(branched.model.state_dict()) == bits(third), "from the last branch nobody goes back"


def test_branches_that_follow_each_other_begin_at_the_same_weights() -> None:
    both = Training([TRUNK, BRANCH, BRANCH, TRUNK])
    both.run(TRUNK.steps + BRANCH.steps)
    middle = bits(both.state()["model"])
    assert middle == bits(Training([TRUNK]).run().state()["model"])


def test_a_branch_may_be_the_first_phase() -> None:
    assert bits(Training([BRANCH, TRUNK]).run(BRANCH.steps).model.state_dict()) == bits(Training([]).model.state_dict())


def test_a_resume_at_any_step_ends_with_the_same_bits() -> None:
    parts = [TRUNK, BRANCH, TRUNK, BRANCH]
    undisturbed = bits(Training(parts).run().state())
    assert len(undisturbed["members"]["members"]) == 2
    for step in range(1, sum(part.steps for part in parts) + 1):
        assert bits(Training(parts).run(step).resumed().run().state()) == undisturbed, f"resumed after step {step}"


def test_what_is_kept_does_not_follow_the_training() -> None:
    one = Training([TRUNK, BRANCH, TRUNK])
    one.run(TRUNK.steps + 1)
    start = bits(one.members.state_dict()["start"])
    one.run(TRUNK.steps + 2)
    assert bits(one.members.state_dict()["start"]) == start


def test_a_training_without_branches_keeps_nothing(tmp_path: Path) -> None:
    assert Training([TRUNK, TRUNK]).run().members.state_dict() == {}
