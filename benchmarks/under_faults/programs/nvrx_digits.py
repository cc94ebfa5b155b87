"""A rank of the training under NVRx's launcher: `ft_launcher ... -m ...programs.nvrx_digits FOLDER EVERY`.

The launcher starts all ranks again when one dies; they continue from the newest checkpoint of rank 0.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from benchmarks.under_faults.programs.digits import Digits
from benchmarks.under_faults.programs.steps import RANKS, Steps


def main() -> None:
    folder, every, rank = Path(sys.argv[1]), int(sys.argv[2]), int(os.environ["RANK"])
    steps, digits = Steps(folder, rank), Digits(rank)
    step = _load(folder / "checkpoint.pt", digits)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(digits.model)
    while True:
        digits.optimizer.zero_grad()
        digits.loss(model, step).backward()
        digits.optimizer.step()
        step += 1
        steps.add(step, RANKS)
        if step % every == 0 and rank == 0:
            _save(folder, digits, step)


def _save(folder: Path, digits: Digits, step: int) -> None:
    state = {"step": step, "model": digits.model.state_dict(), "optimizer": digits.optimizer.state_dict()}
    torch.save(state, folder / ".checkpoint.pt")
    (folder / ".checkpoint.pt").rename(folder / "checkpoint.pt")


def _load(path: Path, digits: Digits) -> int:
    """The step of the checkpoint; 0 without one."""
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    digits.model.load_state_dict(state["model"])
    digits.optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


if __name__ == "__main__":
    main()
