"""One training in this process."""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from training.config import SCHEMA, Config
from training.learner import Learner
from training.meeting.ranks import Ranks
from training.parts import build_parts, settle
from training.recipe.train import Train

CPU = torch.device("cpu")
PATHS = ("rendezvous", "checkpoints", "memory", "metrics", "trace", "done")


def accuracy(train: Train) -> float:
    """On the test images, in percent; NaN if the training diverged."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    with tempfile.TemporaryDirectory() as folder:
        store = dist.FileStore(f"{folder}/store", 1)
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        try:
            return _accuracy(train, Path(folder))
        finally:
            dist.destroy_process_group()


def _accuracy(train: Train, folder: Path) -> float:
    paths: dict[str, Any] = {name: folder / name for name in PATHS}
    config = Config(
        schema=SCHEMA, run="large", attempt=1, grid=(1,), interface="lo", rendezvous_timeout_s=60.0, stretch=None,
        mean_time_to_failure_s=1e6, memory_until_s=0.0, token="0" * 64, train=train, **paths,
    )  # fmt: skip
    parts = build_parts(train, CPU)
    settle(parts.optimizer, CPU)
    learner = Learner(config, Ranks(0, 1, 0), CPU, parts)
    while not learner.finished:
        learner.step(stop=False)
        if not all(torch.isfinite(each).all() for each in list(learner.model.parameters())[-2:]):
            return math.nan
    return 100.0 * learner.evaluate().model.accuracy
