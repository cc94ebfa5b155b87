"""Weights in files: the format safetensors, weights that a training starts from, and those that it exports."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from phased import group as group
from phased import learner
from states import saved
from torch import nn
from training_runs import TRAIN

from torusrun.training import export
from torusrun.training.checkpoint.store import CheckpointFolder
from torusrun.training.files import safetensors
from torusrun.training.parts import build_parts, load_weights
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import DataKeys, ModelKeys

CPU = torch.device("cpu")


def tensors(chance: Random) -> dict[str, torch.Tensor]:
    shapes = [(), (0,), (3,), (2, 0, 4), (2, 3, 4)]
    found = {}
    for number, dtype in enumerate(safetensors.NAMES):
        shape = chance.choice(shapes)
        found[f"layer{number}.ünïcode"] = torch.randint(0, 2, shape).to(dtype)
    return {**found, "columns": torch.rand(3, 4).T}


def test_a_file_is_read_as_it_was_written(tmp_path: Path, chance: Random) -> None:
    written = tensors(chance)
    safetensors.write(tmp_path / "x.safetensors", written, {"step": "7"})
    assert same(safetensors.read(tmp_path / "x.safetensors"), written)
    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors"]


def test_files_are_those_of_the_formats_own_library(tmp_path: Path, chance: Random) -> None:
    library = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    written = {name: tensor.contiguous() for name, tensor in tensors(chance).items()}
    safetensors.write(tmp_path / "ours.safetensors", written, {"step": "7"})
    library.save_file(written, tmp_path / "theirs.safetensors", {"step": "7"})
    assert same(library.load_file(tmp_path / "ours.safetensors"), written)
    assert same(safetensors.read(tmp_path / "theirs.safetensors"), written)


def same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> bool:
    return found.keys() == expected.keys() and all(
        found[name].dtype == tensor.dtype and torch.equal(found[name], tensor) for name, tensor in expected.items()
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04" + bytes(100),
        (50).to_bytes(8, "little") + b"[" * 50,
        (2).to_bytes(8, "little") + b"[]",
        *(
            len(text := json.dumps({"a": told}).encode()).to_bytes(8, "little") + text + bytes(8)
            for told in (
                {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},  # beyond the end
                {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]},
                {"dtype": "F32", "shape": [-2], "data_offsets": [0, -8]},
                {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]},
                {"dtype": "F32", "shape": [2.0], "data_offsets": [0, 8]},
                {"shape": [2], "data_offsets": [0, 8]},
                7,
            )
        ),
    ],
)
def test_another_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match="not a safetensors file|not described in a way that is known"):
        safetensors.read(tmp_path / "x.safetensors")


class Net(nn.Module):
    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
        self.fc = nn.Linear(2, classes)


def load(model: nn.Module, folder: Path, state: dict[str, Any], **keys: Any) -> None:
    safetensors.write(folder / "w.safetensors", state, {})
    load_weights(model, ModelKeys(weights=str(folder / "w.safetensors"), **keys))


def test_a_network_starts_from_the_given_weights_but_for_new_ones(tmp_path: Path) -> None:
    first, other = Net(), Net(classes=5)
    first.layers[1].running_mean += 1
    before = other.fc.weight.clone()
    load(other, tmp_path, {k: v for k, v in first.state_dict().items() if "num_batches" not in k}, new=("fc.",))
    found, expected = other.state_dict(), first.state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected if not name.startswith("fc."))
    assert torch.equal(other.fc.weight, before)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda state: state.pop("fc.bias"), "it lacks fc.bias"),
        (lambda state: state.update(head=torch.zeros(1)), "the network has no head"),
        (lambda state: state.update({"fc.bias": torch.zeros(5)}), r"fc.bias has the shape \(5,\), and .* \(3,\)"),
    ],
)  # fmt: skip
def test_weights_that_do_not_fit_are_refused(change: Any, said: str, tmp_path: Path) -> None:
    state = dict(Net().state_dict())
    change(state)
    with pytest.raises(ConfigError, match=f"train.model.weights: .*w.safetensors: {said}; names that begin"):
        load(Net(), tmp_path, state)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="train.model.weights: /nowhere/w.safetensors: cannot be read: No such file"):
        load_weights(Net(), ModelKeys(weights="/nowhere/w.safetensors"))


def test_the_nodes_copy_of_the_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, model = Net(), Net()
    safetensors.write(tmp_path / "copy", given.state_dict(), {})
    (tmp_path / "paths.json").write_text(json.dumps({"/nowhere/w.safetensors": str(tmp_path / "copy")}))
    monkeypatch.setenv("TORUSRUN_STAGED", str(tmp_path))
    load_weights(model, ModelKeys(weights="/nowhere/w.safetensors"))
    assert torch.equal(model.fc.weight, given.fc.weight)


@pytest.mark.parametrize("named", [False, True])
def test_a_checkpoint_is_exported_and_another_training_starts_from_it(
    group: None, tmp_path: Path, named: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    one, _ = learner(tmp_path, phases=(), epochs=1)
    for _ in range(3):
        one.step(stop=False)
    state = one.state()
    name = saved(CheckpointFolder(tmp_path / "checkpoints", attempt=1), state, one.progress, one.epochs)
    file = tmp_path / "w.safetensors"
    where = tmp_path / "checkpoints" / name if named else tmp_path / "checkpoints"
    assert export.main([str(where), str(file)]) == 0
    assert "the weights after step 3" in capsys.readouterr().out
    expected = state["model"]
    assert same(safetensors.read(file), dict(expected))
    other, _ = learner(tmp_path / "other", phases=(), epochs=1)
    load_weights(other.model, ModelKeys(weights=str(file)))
    assert same(dict(other.model.state_dict()), dict(expected))


def test_without_a_checkpoint_nothing_is_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export.main([str(tmp_path), str(tmp_path / "w.safetensors")]) == 2
    assert "there is no complete checkpoint in it" in capsys.readouterr().err


def test_the_parts_of_a_training_start_from_the_file(tmp_path: Path) -> None:
    first = build_parts(TRAIN, CPU).model
    with torch.no_grad():
        for weight in first.parameters():
            weight += 1
    safetensors.write(tmp_path / "w.safetensors", first.state_dict(), {})
    keys = ModelKeys(weights=str(tmp_path / "w.safetensors"))
    again = build_parts(replace(TRAIN, model=keys, data=DataKeys("digits")), CPU).model
    assert same(dict(again.state_dict()), dict(first.state_dict()))
