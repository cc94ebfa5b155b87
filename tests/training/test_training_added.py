"""Clipping, equal to plain torch."""

from __future__ import annotations

from pathlib import Path

import torch
from phased import SAMPLES, Small, digits, learner
from phased import group as group
from torch.nn import functional

from torusrun.training.data import order

BATCH, STEPS = 64, 12
CLIPPED = 0.3


def test_clipping_is_that_of_plain_torch(group: None, tmp_path: Path) -> None:
    one, _ = learner(tmp_path, phases=(), epochs=1, clip_norm=CLIPPED)
    model = Small()
    decayed = [weight for weight in model.parameters() if weight.ndim > 1]
    others = [weight for weight in model.parameters() if weight.ndim < 2]
    groups = [{"params": decayed, "weight_decay": 1e-4}, {"params": others, "weight_decay": 0.0}]
    optimizer, norms = torch.optim.SGD(groups, lr=0.1, momentum=0.9), list[float]()
    for step in range(STEPS):
        one.step(stop=False)
        samples = order.rank_batch(step * BATCH, batch=BATCH, rank=0, world=1, samples=SAMPLES, seed=1)
        inputs, labels = digits().train_batch(samples)
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), labels, label_smoothing=0.1).backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIPPED)))
        for each in optimizer.param_groups:
            each["lr"] = one.last_rate
        optimizer.step()
    assert max(norms) > CLIPPED, f"nothing was clipped: {norms}"
    state = one.state()
    for name, tensor in model.state_dict().items():
        assert torch.allclose(state["model"][name], tensor, atol=1e-6), name
