"""Keys of a training that do not go together: each pair is named once, with advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from torusrun.training.recipe.fits import misfits
from torusrun.training.recipe.phases import PhaseKeys
from torusrun.training.recipe.train import (
    LarsKeys,
    LossScaleKeys,
    NormKeys,
    OptimizerKeys,
    ScheduleKeys,
    SyncKeys,
    Train,
)

SHARDED = OptimizerKeys("lars", lars=LarsKeys(form="sharded"))
ONLY_TORUS = "'sharded' needs sync.all_reduce torus, sync.wire fp32 and a precision other than fp16"
FALLING = PhaseKeys(20, lr=(1.0, 0.0), reach=8)
MISFITS: list[tuple[dict[str, Any], str, str]] = [
    ({"norm": NormKeys(ranks=3)}, "norm.ranks", "4 ranks do not divide into groups of 3"),
    ({"norm": NormKeys(ranks=8)}, "norm.ranks", "4 ranks do not divide into groups of 8"),
    ({"norm": NormKeys(statistics="last", momentum=0.1)}, "norm.momentum", "is for 'statistics: moving'"),
    ({"accumulate": 3}, "batch", "64 does not divide by 4 ranks x 3 (accumulate)"),
    ({"loss_scale": LossScaleKeys(start=8.0)}, "loss_scale", "is for fp16"),
    ({"optimizer": SHARDED, "sync": SyncKeys(wire="bf16")}, "optimizer.lars.form", ONLY_TORUS),
    ({"optimizer": SHARDED, "sync": SyncKeys(all_reduce="flat")}, "optimizer.lars.form", ONLY_TORUS),
    ({"optimizer": SHARDED, "precision": "fp16"}, "optimizer.lars.form", ONLY_TORUS),
    ({"phases": (PhaseKeys(20, batch=6),)}, "phases[0].batch", "6 does not divide by 4 ranks; try 8"),
    ({"phases": (PhaseKeys(8), PhaseKeys(8), PhaseKeys(20))}, "phases[1].until", "8 is not after epoch 8"),
    ({"phases": (PhaseKeys(8),)}, "phases[0].until", "the run has 20 epochs; write 20, or 'epochs: 8'"),
    (
        {"phases": (PhaseKeys(8, lr=(1.0,)), PhaseKeys(20))},
        "phases[1]",
        "has no 'lr', and other phases have one",
    ),
    (
        {"phases": (PhaseKeys(20, lr=(1.0,), reach=30),)},
        "phases[0].reach",
        "changes; write 'lr: [from, to]'",
    ),
    ({"phases": (PhaseKeys(8, lr=(1.0,)), FALLING)}, "phases[1].reach", "8 is not after epoch 8"),
    ({"phases": (PhaseKeys(20, area=(1.0, 0.1)),)}, "phases[0].area", "[1, 0.1] is empty; write [0.1, 1]"),
    ({"phases": (PhaseKeys(20, lr=(1.0,)),), "schedule": ScheduleKeys("linear")}, "schedule", ""),
]
# What an optimizer does not read, of the keys that each may have.
NOT_READ = [
    ("lars", {"nesterov": True}), ("lars", {"lr_in_momentum": True}), ("lars", {"decay_vectors": True}),
    ("rmsprop-warmup", {"nesterov": True}), ("rmsprop-warmup", {"momentum_correction": True}),
    ("sgd", {"momentum_correction": True}),
    ("lars", {"momentum_correction": True, "lars": LarsKeys(lr_in_momentum=False)}),
]  # fmt: skip
MISFITS += [
    ({"optimizer": OptimizerKeys(name, **keys)}, f"optimizer.{next(iter(keys))}", "") for name, keys in NOT_READ
]
READ = [
    OptimizerKeys("sgd", nesterov=True, lr_in_momentum=True, momentum_correction=True, decay_vectors=True),
    OptimizerKeys("lars", momentum_correction=True),
    OptimizerKeys("rmsprop-warmup", decay_vectors=True),
    OptimizerKeys("my.own:optimizer", nesterov=True, momentum_correction=True),
]


@pytest.mark.parametrize(("changes", "key", "says"), MISFITS, ids=[key for _, key, _ in MISFITS])
def test_keys_that_do_not_go_together(changes: dict[str, Any], key: str, says: str) -> None:
    (misfit,) = misfits(replace(Train(), **changes), ranks=4)
    assert misfit.key == f"train.{key}" and says in f"{misfit.message}; {misfit.advice}" and misfit.advice


@pytest.mark.parametrize("keys", READ, ids=lambda keys: keys.name)
def test_keys_that_an_optimizer_reads_are_not_refused(keys: OptimizerKeys) -> None:
    assert not list(misfits(Train(optimizer=keys), 1))


def test_a_batch_that_no_phase_uses_need_not_divide() -> None:
    assert not list(misfits(Train(batch=63, phases=(PhaseKeys(20, batch=64),)), ranks=4))
