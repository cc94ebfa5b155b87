"""The configuration of a training, and keys that do not go together: each is named once, with advice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from training_runs import ROOT, TOKEN, config

from torusrun.training.config import Config, ConfigError, load
from torusrun.training.recipe.fits import misfits
from torusrun.training.recipe.train import LarsKeys, NormKeys, OptimizerKeys, PhaseKeys, ScheduleKeys, Train


def change(**values: Any) -> dict[str, Any]:
    return values


MISTAKES = [
    (change(colour=1), "unknown key colour"),
    (change(train=change(learning=1)), "unknown key train.learning"),
    (change(train=change(epochs="many")), "train.epochs must be an integer, not 'many'"),
    (change(train=change(epochs=True)), "train.epochs must be an integer, not True"),
    (change(train=change(lr=0.1)), "unknown key train.lr"),
    (change(train=change(optimizer=change(lr=0))), "train.optimizer.lr must be above 0, not 0"),
    (change(train=change(optimizer=change(lr=float("nan")))), "train.optimizer.lr must be above 0"),
    (change(train=change(optimizer=change(lr="fast"))), "train.optimizer.lr must be a number, not 'fast'"),
    (change(train=change(optimizer=change(momentum=1.0))), "train.optimizer.momentum must be at most 0.9999"),
    (change(train=change(optimizer=change(options=[1]))), "train.optimizer.options must be an object, not a list"),
    (change(train=change(optimizer=change(options={"a-b": 1}))), "must be the name of an argument, not 'a-b'"),
    (
        change(train=change(optimizer=change(options={"a": ["b"]}))),
        "options.a must be a string, a number, a boolean or a",
    ),
    (change(train=change(phases={})), "train.phases must be a list, not a number"),
    (change(train=change(phases=[3])), "train.phases[0] must be an object, not a number"),
    (change(train=change(phases=[change(until=20)])), "key train.phases[0].lr is missing"),
    (
        change(train=change(model=change(name="vgg"))),
        "train.model.name must be one of resnet-digits, resnet-small, resnet18, resnet50, or package.module",
    ),
    (change(train=change(model="vgg")), "train.model must be an object, not a string"),
    (change(train=change(data=change(area=[0.1]))), "train.data.area must have 2 values, not 1"),
    (change(train=change(data=change(area=[0.1, 2]))), "train.data.area[1] must be at most 1"),
    (change(train=change(data=change(aspect=1.0))), "train.data.aspect must be a list, not a number"),
    (change(train=change(data=change(area=[0.5, 0.1]))), "train.data.area [0.5, 0.1] is empty"),
    (change(train=change(device="tpu")), "train.device must be one of auto, cpu, cuda, not 'tpu'"),
    (change(train=change(batch=63)), "train.batch 63 does not divide by 4 ranks"),
    (change(grid=[3, 2]), "grid 3 x 2 does not hold the 4 ranks"),
    (change(grid=[4.0]), "grid must be a list of integers"),
    (change(grid=4), "grid must be a list of integers, not 4"),
    (change(grid=[]), "grid must have 1 to 3 levels, not 0"),
    (change(grid=[1, 2, 2, 1]), "grid must have 1 to 3 levels, not 4"),
    (change(grid=[2, 2, 2]), "grid 2 x 2 x 2 does not hold the 4 ranks"),
    (change(grid=[-2, -2]), "grid -2 x -2"),
    (change(interface=3), "interface must be a string or null"),
    (change(schema=1), "schema 1 is not known; this training reads schema 6"),
    (change(checkpoints=""), "checkpoints must be a path"),
    (change(done=""), "done must be a path"),
    (change(train=1), "train must be an object, not a number"),
]
NOT_TOKENS = [
    TOKEN[:-1], TOKEN + "0", TOKEN + "\n", TOKEN.upper(), "g" * 64, "\u0661" * 64, "", 7, None, [TOKEN],
]  # fmt: skip


def written(folder: Path, changes: dict[str, Any]) -> Path:
    document = config(folder, (2, 2))
    path = folder / "config.json"
    path.write_text(json.dumps(changed(document, changes)))
    return path


def changed(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`document` with some of its values replaced, at any depth."""
    replaced = dict(document)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(document.get(key), dict)
        replaced[key] = changed(document[key], value) if both else value
    return replaced


@pytest.mark.parametrize(("changes", "message"), MISTAKES)
def test_mistakes(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = written(tmp_path, changes)
    with pytest.raises(ConfigError) as caught:
        load(path, world=4)
    assert message in str(caught.value) and str(path) in str(caught.value)
    assert "\n" not in str(caught.value), "one line"


@pytest.mark.parametrize("wrong", NOT_TOKENS, ids=repr)
def test_a_wrong_token_is_refused_and_not_shown(tmp_path: Path, wrong: object) -> None:
    with pytest.raises(ConfigError, match="token must be a string of 64 hex digits") as caught:
        load(written(tmp_path, change(token=wrong)), world=4)
    assert TOKEN[:16] not in str(caught.value).lower(), "a token with a typing error is still a secret"


def test_the_token_is_not_shown(tmp_path: Path) -> None:
    assert TOKEN[:16] not in repr(load(written(tmp_path, {}), world=4))
    (tmp_path / "config.json").write_text(json.dumps([config(tmp_path)]))
    with pytest.raises(ConfigError, match="the config must be an object, not a list") as caught:
        load(tmp_path / "config.json", world=1)
    assert TOKEN[:16] not in str(caught.value)


def test_a_missing_key(tmp_path: Path) -> None:
    document = config(tmp_path)
    del document["train"]["seed"]
    (tmp_path / "config.json").write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=r"key train\.seed is missing"):
        load(tmp_path / "config.json", world=1)


def test_a_good_one(tmp_path: Path) -> None:
    loaded = load(written(tmp_path, {"interface": None}), world=4)
    assert isinstance(loaded, Config) and loaded.grid == (2, 2) and loaded.interface is None
    for dims in ((4,), (2, 1, 2)):
        assert load(written(tmp_path, {"grid": list(dims)}), world=4).grid == dims
    assert loaded.token == TOKEN and loaded.done == tmp_path / "attempts/1/done.json"
    assert loaded.train.optimizer.lr == 0.2 and loaded.checkpoints == tmp_path / "checkpoints"


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        ([], {}, "usage: python -m torusrun.training CONFIG.json"),
        (["missing.json"], {}, "missing.json: cannot be read: No such file or directory"),
        (["README"], {"RANK": "x"}, "RANK='x'"),
        (["README"], {"RANK": "4", "WORLD_SIZE": "4"}, "RANK=4 is not below WORLD_SIZE=4"),
    ],
)
def test_exit_code_2(tmp_path: Path, arguments: list[str], environment: dict[str, str], message: str) -> None:
    command = [sys.executable, "-m", "torusrun.training", *arguments]
    surroundings = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment}
    ended = subprocess.run(command, env=surroundings, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 2, f"a bad config is exit code 2, not {ended.returncode}: {ended.stderr}"
    assert message in ended.stderr and ended.stderr.count("\n") == 1, f"one line is wanted: {ended.stderr}"


FALLING = PhaseKeys(20, lr=(1.0, 0.0), reach=8)
MISFITS: list[tuple[dict[str, Any], str, str]] = [
    ({"norm": NormKeys(ranks=3)}, "norm.ranks", "4 ranks do not divide into groups of 3"),
    ({"norm": NormKeys(ranks=8)}, "norm.ranks", "4 ranks do not divide into groups of 8"),
    ({"norm": NormKeys(statistics="last", momentum=0.1)}, "norm.momentum", "is for 'statistics: moving'"),
    ({"accumulate": 3}, "batch", "64 does not divide by 4 ranks x 3 (accumulate)"),
    ({"loss_scale": 8.0}, "loss_scale", "is for fp16"),
    ({"phases": (PhaseKeys(20, batch=6),)}, "phases[0].batch", "6 does not divide by 4 ranks; try 8"),
    ({"phases": (PhaseKeys(8), PhaseKeys(8), PhaseKeys(20))}, "phases[1].until", "8 is not after epoch 8"),
    ({"phases": (PhaseKeys(8),)}, "phases[0].until", "the run has 20 epochs; write 20, or 'epochs: 8'"),
    ({"phases": (PhaseKeys(8, lr=(1.0,)), PhaseKeys(20))}, "phases[1]", "has no 'lr', and other phases have one"),
    ({"phases": (PhaseKeys(20, lr=(1.0,), reach=30),)}, "phases[0].reach", "changes; write 'lr: [from, to]'"),
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
