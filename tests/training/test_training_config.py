"""A mistake in the config is one line on stderr and exit code 2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from training_runs import ROOT, TOKEN, config

from torusrun.training.config import Config, ConfigError, load


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
    (change(schema=1), "schema 1 is not known; this training reads schema 5"),
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
    ended = subprocess.run(command, env=surroundings, cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 2, f"a bad config is exit code 2, not {ended.returncode}: {ended.stderr}"
    assert message in ended.stderr and ended.stderr.count("\n") == 1, f"one line is wanted: {ended.stderr}"
