"""Accuracy and loss on the test set, of a model and of an ensemble; each rank takes its share of the set."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

TOP = 5


class Score(NamedTuple):
    """Shares of right answers, 0 to 1, and the mean cross entropy (without label smoothing).

    `top5` counts a right answer among the five likeliest; None if there are five classes or fewer.
    """

    accuracy: float
    top5: float | None
    loss: float


class Evaluation(NamedTuple):
    """The scores of a model, of the members of its ensemble if there are any, and of their mean softmax output."""

    model: Score
    members: tuple[Score, ...] = ()
    ensemble: Score | None = None

    def row(self) -> dict[str, object]:
        """The values for the metrics."""
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
    """Scores over the test samples of all ranks; this one brings `batches` of inputs [N, ...] and labels [N].

    Ranks may bring different numbers of batches and of samples, or none. A member is a state of the model. All members
    are on the device at the same time, so a sample is read once. All ranks must call this together. The scores are NaN
    if there is no sample at all.
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
