"""Top 1, top 5 and loss on the test set, of a model and of an ensemble; each rank takes its share of the set.

The collapsed ensemble has short branches off one training; the weights at their ends are its members. Source: Codreanu
et al. 2017, arXiv 1711.04291 (abstract and released solvers verified). A phase with `collapse` is a branch: its rates
fall to the end, its weights become a member, and the training continues from before the branch. The ensemble's answer
is the mean of its members' softmax outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from torusrun.training.recipe.protocols import Optimizer
from torusrun.training.schedule import Phase

TOP = 5


class Score(NamedTuple):
    """Shares of right answers, 0 to 1, and the mean cross entropy (without label smoothing).

    `top5` counts a right answer among the five likeliest; None for five classes or fewer.
    """

    accuracy: float
    top5: float | None
    loss: float


class Evaluation(NamedTuple):
    """The scores of a model, of the members of its ensemble if it has any, and of their mean softmax output."""

    model: Score
    members: tuple[Score, ...] = ()
    ensemble: Score | None = None

    def row(self) -> dict[str, object]:
        accuracy, top5, loss = self.model
        row: dict[str, object] = {"accuracy": round(accuracy, 5), "test_loss": round(loss, 5)}
        if top5 is not None:
            row["top5"] = round(top5, 5)
        if self.ensemble is not None:
            members = [round(member.accuracy, 5) for member in self.members]
            row |= {"members": members, "best_member": max(members), "ensemble": round(self.ensemble.accuracy, 5)}
        return row


def evaluate(
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    device: torch.device,
    classes: int,
    members: Sequence[Mapping[str, Tensor]] = (),
) -> Evaluation:
    """Scores over the test samples of all ranks; each brings its `batches` of inputs [N, ...] and labels [N].

    Ranks may bring different numbers of batches and of samples, or none. A member is a state of the model. All members
    are on the device at the same time, so a sample is read once. All ranks must call it together. Without any sample
    the scores are NaN.
    """
    states = [{name: tensor.to(device) for name, tensor in member.items()} for member in members]
    totals = torch.zeros(1 + len(states) + bool(states), 3, dtype=torch.float64, device=device)
    seen = 0
    model.eval()
    with torch.inference_mode():
        for inputs, labels in batches:
            if len(labels):
                totals += _totals(_outputs(model, states, inputs.to(device)), labels.to(device))
                seen += len(labels)
    model.train()
    counted = torch.cat([totals.flatten(), totals.new_tensor([seen])])
    dist.all_reduce(counted)
    *sums, samples = counted.tolist()
    scores = [_score(sums[at : at + 3], samples, classes) for at in range(0, len(sums), 3)]
    return Evaluation(scores[0], tuple(scores[1 : 1 + len(states)]), scores[-1] if states else None)


def _outputs(model: nn.Module, states: Sequence[dict[str, Tensor]], inputs: Tensor) -> list[Tensor]:
    """Logits [N, classes] of the model, of each member, and of the ensemble (the log of the mean softmax output)."""
    logits = [model(inputs), *(functional_call(model, state, (inputs,), tie_weights=False) for state in states)]
    if states:
        each = torch.stack([functional.log_softmax(some.float(), dim=1) for some in logits[1:]])
        logits.append(torch.logsumexp(each, dim=0) - math.log(len(states)))
    return logits


def _totals(outputs: Sequence[Tensor], labels: Tensor) -> Tensor:
    """[outputs, 3]: for each output the right answers, the right answers among the first five, and the summed loss."""
    rows = []
    for logits in outputs:
        right = logits.argmax(dim=1) == labels
        near = logits.topk(min(TOP, logits.shape[1]), dim=1).indices == labels[:, None]
        loss = functional.cross_entropy(logits.float(), labels, reduction="sum")
        rows.append(torch.stack([right.sum().double(), near.sum().double(), loss.double()]))
    return torch.stack(rows)


def _score(sums: Sequence[float], samples: float, classes: int) -> Score:
    right, near, loss = (total / samples if samples else math.nan for total in sums)
    return Score(right, near if classes > TOP else None, loss)


class Members:
    """The members so far, as states of `model`, and the state to which the training returns after a branch.

    They are in the host's memory on every rank, and in checkpoints: a copy of the weights for each member (102 MB for
    ResNet-50), and within a branch another, with the optimizer's state (204 MB with momentum). `before_keeping` is
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
            self._start = {"model": _kept(self._model.state_dict()), "optimizer": _kept(self._optimizer.state_dict())}

    def state_dict(self) -> dict[str, Any]:
        return {"members": self.states, "start": self._start} if self.states or self._start else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.states, self._start = list(state.get("members", [])), state.get("start")


def _kept(state: Any) -> Any:
    """A copy of nested dicts and lists, with their tensors in the host's memory."""
    if isinstance(state, Tensor):
        return state.detach().to("cpu", copy=True)
    if isinstance(state, dict):
        return {name: _kept(value) for name, value in state.items()}
    return [_kept(value) for value in state] if isinstance(state, (list, tuple)) else state
