"""One training in this process."""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from torusrun.training.collectives import device as devices
from torusrun.training.config import SCHEMA, Config, Ranks
from torusrun.training.learner import Learner
from torusrun.training.parts import build_parts, settle
from torusrun.training.recipe.train import Train

LOOKS = 16  # steps between two looks for weights that are not finite, which wait for the device
PATHS = ("rendezvous", "checkpoints", "memory", "metrics", "trace", "done")


def accuracy(train: Train, device: torch.device) -> float:
    """On the test images, in percent; NaN if the training diverged."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    if device.type == "cuda":
        devices.prepare("cuda", 0, train.precision)
    with tempfile.TemporaryDirectory() as folder:
        store = dist.FileStore(f"{folder}/store", 1)
        dist.init_process_group(devices.backend(device), store=store, rank=0, world_size=1)
        try:
            return _accuracy(train, device, Path(folder))
        finally:
            dist.destroy_process_group()


def _accuracy(train: Train, device: torch.device, folder: Path) -> float:
    paths: dict[str, Any] = {name: folder / name for name in PATHS}
    config = Config(
        schema=SCHEMA, run="large", attempt=1, grid=(1,), by_size=(), interface="lo",
        rendezvous_timeout_s=60.0, mean_time_to_failure_s=1e6, memory_until_s=0.0, token="0" * 64, train=train, **paths,
    )  # fmt: skip
    parts = build_parts(train, device)
    settle(parts.optimizer, device)
    learner = Learner(config, Ranks(0, 1, 0), device, parts)
    while not learner.finished:
        learner.step(stop=False)
        if learner.progress.steps % LOOKS == 0 and not _is_finite(learner.model):
            return math.nan
    return 100.0 * learner.evaluate().model.accuracy if _is_finite(learner.model) else math.nan


def _is_finite(model: torch.nn.Module) -> bool:
    return all(bool(torch.isfinite(each).all()) for each in list(model.parameters())[-2:])
