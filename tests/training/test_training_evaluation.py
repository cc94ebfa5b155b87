"""Scores on the test set, and the collapsed ensemble."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any, NamedTuple

import ensemble_ranks
import pytest
import torch
from ensemble_ranks import Linear, samples
from torch import Tensor, nn
from torch.nn import functional
from torus_ranks import RankPool

from torusrun.training.evaluation import Members
from torusrun.training.optim.sgd import SGD


def score(logits: Tensor, labels: Tensor) -> tuple[float, float, float]:
    likeliest = logits.argsort(dim=1, descending=True)
    right = [label in row[:1] for row, label in zip(likeliest.tolist(), labels.tolist(), strict=True)]
    near = [label in row[:5] for row, label in zip(likeliest.tolist(), labels.tolist(), strict=True)]
    return sum(right) / len(right), sum(near) / len(near), float(functional.cross_entropy(logits.double(), labels))


def outputs(seed: int, inputs: Tensor) -> Tensor:
    with torch.no_grad():
        return Linear(seed).eval()(inputs)  # type: ignore[no-any-return]


SHARDS = [[[0], [1], [50]], [[], [40], [3, 0, 1, 30]], [[17], [17], [17]], [[1], [], []]]


@pytest.mark.parametrize("shards", SHARDS, ids=str)
def test_counts_are_exact_on_uneven_shards(three: RankPool, shards: list[list[int]]) -> None:
    """Ranks bring shards of no, one and many samples, in different numbers of batches, and empty batches."""
    inputs, labels = samples(sum(map(sum, shards)))
    accuracy, top5, loss = score(outputs(0, inputs), labels)
    for found, unchanged in three.ask(ensemble_ranks.evaluated, shards, []):
        assert unchanged, "an evaluation must leave the model as it was, in training mode"
        assert (found.model.accuracy, found.model.top5) == (accuracy, top5)
        assert found.model.loss == pytest.approx(loss, rel=1e-6)
        assert found.members == () and found.ensemble is None


@pytest.mark.parametrize("shards", SHARDS[1:3], ids=str)
def test_an_ensemble_is_the_mean_of_its_members_softmax_outputs(three: RankPool, shards: list[list[int]]) -> None:
    inputs, labels = samples(sum(map(sum, shards)))
    each = [outputs(seed, inputs) for seed in (1, 2, 3)]
    mean = torch.stack([functional.softmax(logits.double(), dim=1) for logits in each]).mean(0)
    wanted = [score(logits, labels) for logits in (outputs(0, inputs), *each, mean.log())]
    for found, unchanged in three.ask(ensemble_ranks.evaluated, shards, [1, 2, 3]):
        assert unchanged
        scores = [found.model, *found.members, found.ensemble]
        assert [(one.accuracy, one.top5) for one in scores] == [each[:2] for each in wanted]
        assert [one.loss for one in scores] == pytest.approx([each[2] for each in wanted], rel=1e-6)


def test_the_first_five_of_five_classes_say_nothing(three: RankPool) -> None:
    for found, _ in three.ask(ensemble_ranks.evaluated, [[4], [], [4]], [], 5):
        assert found.model.top5 is None and 0 <= found.model.accuracy <= 1


def test_without_samples_nothing_is_known(three: RankPool) -> None:
    for found, _ in three.ask(ensemble_ranks.evaluated, [[], [0], []], [1]):
        assert all(math.isnan(value) for value in (*found.model, *found.ensemble))


def test_ranks_that_find_other_data_sets_say_so_alike(three: RankPool) -> None:
    assert three.ask(ensemble_ranks.refused, [(36, 15, 3)] * 3) == [""] * 3
    said = set(three.ask(ensemble_ranks.refused, [(36, 15, 3), (36, 15, 3), (35, 15, 3)]))
    assert len(said) == 1
    assert said.pop().startswith("train.data: rank 2 found 35 samples, 15 test samples and 3 classes, and rank 0 36 sa")
    assert three.ask(ensemble_ranks.refused, [(36, 15, 3, "one")] * 3) == [""] * 3
    said = set(three.ask(ensemble_ranks.refused, [(36, 15, 3, "one"), (36, 15, 3, "other"), (36, 15, 3, "one")]))
    assert (
        len(said) == 1 and "rank 1 found 36 samples, 15 test samples and 3 classes as rank 0, and not the" in said.pop()
    )


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
