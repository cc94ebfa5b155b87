"""`python -m torusrun.training.export CHECKPOINT FILE.safetensors`: the weights of a checkpoint, for other programs.

CHECKPOINT is a folder `step-...`, or a folder of checkpoints, whose newest complete checkpoint is taken.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from torusrun.training.checkpoint.loading import RefusedCheckpoint, load
from torusrun.training.checkpoint.manifest import (
    METADATA,
    STATE,
    IncompleteCheckpoint,
    newest_complete,
    step_of,
    verify,
)
from torusrun.training.files import safetensors


def main(arguments: list[str]) -> int:
    """Write the file; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m torusrun.training.export", description="Write a checkpoint's weights to a file."
    )
    parser.add_argument("checkpoint", type=Path, help="a checkpoint, or a folder of checkpoints")
    parser.add_argument("file", type=Path, help="the file to write, as weights.safetensors; replaced if it is there")
    asked = parser.parse_args(arguments)
    try:
        print(export(asked.checkpoint, asked.file))
    except (OSError, ValueError, RefusedCheckpoint) as error:
        print(f"export: {error}", file=sys.stderr)
        return 2
    return 0


def export(checkpoint: Path, file: Path) -> str:
    """Write the weights; returns what was written. Raises ValueError without a complete checkpoint, or OSError."""
    named = step_of(checkpoint.name) is not None
    complete = verify(checkpoint) if named else newest_complete(checkpoint)
    if complete is None:
        raise IncompleteCheckpoint(f"{checkpoint}: there is no complete checkpoint in it")
    if METADATA in complete.sha256:
        torchs = f"python -m torch.distributed.checkpoint.format_utils dcp_to_torch {complete.path} FILE.pt"
        raise ValueError(f"{complete.path}: its state is sharded over the ranks; `{torchs}` makes one file of it")
    state = load(complete.path.parent, complete.name, complete.sha256[STATE], torch.device("cpu"))
    weights = state["model"]
    metadata = {"format": "pt", "step": str(complete.progress.steps), "epoch": f"{complete.epoch:.6g}"}
    safetensors.write(file, weights, metadata)
    return f"{file}: the weights after step {complete.progress.steps}, {len(weights)} tensors"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
