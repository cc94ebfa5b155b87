"""The file that records that the training is complete."""

from __future__ import annotations

import json

import torch

from torusrun.training.config import Config
from torusrun.training.files.trusted import put
from torusrun.training.meeting.agree import agreed
from torusrun.training.meeting.ranks import Ranks
from torusrun.training.progress import Progress
from torusrun.training.reporting.output import warn

SCHEMA = 1


def record(config: Config, ranks: Ranks, device: torch.device, progress: Progress) -> bool:
    """Rank 0 writes `config.done` at the end of the training; False on every rank if it could not.

    All ranks must call it together. An attempt without this file does not count as complete.
    """
    return agreed(_write(config, progress) if ranks.rank == 0 else True, device)


def _write(config: Config, progress: Progress) -> bool:
    steps, samples = progress.steps, progress.samples
    content = {"schema": SCHEMA, "attempt": config.attempt, "step": steps, "total_steps": steps, "samples": samples}
    try:
        put(config.done, json.dumps(content).encode(), mode=0o644)
    except OSError as error:
        where = f"all {steps} steps are done, but {config.done} could not be written: {error.strerror}"
        warn(f"training: {where}; free space there and resume the run")
        return False
    return True
