"""A whole training on the device: it learns, writes checkpoints, and continues from them; on a card compiled, too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd import DeviceType

from torusrun.training.collectives.all_reduce import build
from torusrun.training.config import SCHEMA
from torusrun.training.models.residual import build_resnet50
from torusrun.training.parts import build_parts
from torusrun.training.recipe.train import CheckpointKeys, ModelKeys, OptimizerKeys, Train
from torusrun.training.sync.gradients import Gradients

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 300.0


def attempt(folder: Path, number: int, train: Train) -> list[dict[str, Any]]:
    """The metrics of one attempt of a run in `folder`, which must end well."""
    own = folder / str(number)
    own.mkdir()
    paths = {
        "rendezvous": own / "rendezvous.json", "done": own / "done.json", "trace": own / "trace.jsonl",
        "checkpoints": folder / "checkpoints", "memory": folder / "memory", "metrics": folder / "metrics.jsonl",
    }  # fmt: skip
    config = {
        "schema": SCHEMA, "run": "gpu", "attempt": number, "grid": [1, 1], "by_size": [], "interface": "lo",
        "token": "ab" * 32, "rendezvous_timeout_s": 60.0, "memory_until_s": 4e9,
        "mean_time_to_failure_s": 1e6, "train": asdict(train), **{name: str(path) for name, path in paths.items()},
    }  # fmt: skip
    (own / "config.json").write_text(json.dumps(config))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    command = [sys.executable, "-m", "torusrun.training", str(own / "config.json")]
    ran = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)
    assert ran.returncode == 0, ran.stderr
    rows = [json.loads(line) for line in paths["metrics"].read_text().splitlines()]
    return [row for row in rows if row["attempt"] == number]


def event(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(row for row in rows if row["event"] == name)


def train_of(device: torch.device, epochs: int, **keys: Any) -> Train:
    named: Any = device.type
    return Train(
        device=named, model=ModelKeys("resnet-small", {"widths": (8, 16)}), epochs=epochs, batch=64,
        optimizer=OptimizerKeys("lars", lr=1.0), checkpoint_every_steps=15, **{"compile": False, **keys},
    )  # fmt: skip


def test_a_training_continues_from_the_checkpoint_of_another(device: torch.device, tmp_path: Path) -> None:
    first = attempt(tmp_path, 1, train_of(device, 1))
    again = attempt(tmp_path, 2, train_of(device, 3))
    assert event(first, "start")["step"] == 0 and event(first, "start")["device"] == device.type
    assert event(again, "start")["step"] == event(first, "done")["step"] > 0
    assert event(again, "done")["accuracy"] >= event(first, "done")["accuracy"] - 0.1


@pytest.mark.parametrize(
    "keys", [{"compile": True}, {"precision": "fp16"}, {"checkpoints": CheckpointKeys(memory=True)}]
)
def test_other_keys_train_on_a_card(cuda: torch.device, tmp_path: Path, keys: dict[str, Any]) -> None:
    """tests/training has them on the CPU."""
    assert event(attempt(tmp_path, 1, train_of(cuda, 4, **keys)), "done")["accuracy"] > 0.2


def test_the_gradients_of_a_bucket_are_copied_in_few_launches(alone: torch.device) -> None:
    """Backward makes them in the layout of their weights: others would be copied one by one."""
    network = build_resnet50(classes=10, shape=(3, 32, 32), seed=0, channels_last=True).to(alone)
    gradients = Gradients(network, build("flat", (1,)))
    for _ in range(2):
        gradients.clear()
        with torch.autocast(alone.type, torch.bfloat16):
            loss = network(torch.randn(2, 3, 32, 32, device=alone)).float().sum()
        gradients.begin(loss, False)
        loss.backward()
        if alone.type == "cpu":
            assert all(weight.grad.stride() == weight.stride() for weight in network.parameters())  # type: ignore[union-attr]
            assert len(list(gradients.arriving())) == 1
            continue
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            assert len(list(gradients.arriving())) == 1
            torch.cuda.synchronize()
        kernels = [each for each in profile.events() if each.device_type == DeviceType.CUDA]
        assert len(kernels) < 40, "there are 161 gradients"


def test_a_built_in_network_is_channels_last_on_a_card_unless_told_otherwise(cuda: torch.device) -> None:
    cases: list[tuple[dict[str, Any], bool]] = [({}, True), ({"channels_last": False}, False)]
    for options, last in cases:
        model = build_parts(Train(model=ModelKeys("resnet18", options)), cuda).model
        weight = model.get_submodule("layer1.0.conv1").get_parameter("weight")
        assert weight.is_contiguous(memory_format=torch.channels_last) == last
