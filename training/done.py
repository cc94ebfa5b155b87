"""The file that says that the training is complete."""

from __future__ import annotations

import json
import sys

import torch

from training import files
from training.agree import agreed
from training.config import Config
from training.ranks import Ranks

SCHEMA = 1


def record(config: Config, ranks: Ranks, device: torch.device, steps: int) -> bool:
    """Rank 0 writes `config.done` after the last of `steps` steps; false on every rank if it could not.

    All ranks must call it together. An attempt without this file does not count as complete.
    """
    return agreed(_write(config, steps) if ranks.rank == 0 else True, device)


def _write(config: Config, steps: int) -> bool:
    content = {"schema": SCHEMA, "attempt": config.attempt, "step": steps, "total_steps": steps}
    try:
        files.put(config.done, json.dumps(content).encode())
    except OSError as error:
        where = f"all {steps} steps are done, but {config.done} could not be written: {error.strerror}"
        print(f"training: {where}; free space there and resume the run", file=sys.stderr, flush=True)
        return False
    return True
