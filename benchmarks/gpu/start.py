"""The start of an attempt on a card: seconds from the start of its process to its events, for ResNet-50 at batch 256.

`python -m benchmarks.gpu.start`, and with `--small` on a CPU. "met": the ranks have met, and the network and data are
there. On a card a step is done when the next one is reported, so "step 1" is the time of step 2. "again" finds what was
compiled in the node's folder, "another node" in the run's. Below each are the parts of its start, as its run reports.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import card
from tests.gpu.test_gpu_training import attempt, event
from torusrun.training.recipe.train import DataKeys, ModelKeys, OptimizerKeys, Train
from torusrun.training.step.form import KEPT

BATCH, STEPS, LIMIT_S = 256, 8, 60.0
FORMS = ("eager", "compiled", "compiled, again", "compiled, another node")


def train_of(compiled: bool, small: bool) -> Train:
    data = DataKeys("synthetic", {"samples": STEPS * BATCH, "test_samples": 64}, size=32 if small else 224)
    return Train(
        model=ModelKeys("resnet-small" if small else "resnet50"), data=data, optimizer=OptimizerKeys("lars"), epochs=1,
        batch=BATCH, compile=compiled, log_every_steps=1, precision="bf16",
    )  # fmt: skip


def started(folder: Path, number: int, train: Train) -> tuple[list[float], str]:
    """The seconds from the start of the process to the meeting, the first step and the last, and its parts in words."""
    began_s = time.time()
    rows: list[dict[str, Any]] = attempt(folder, number, train)
    ends = {(row["event"], row.get("step")): row["t"] - began_s for row in rows}
    parts = {**event(rows, "start")["start_s"], "two steps": next(filter(None, (r.get("first_steps_s") for r in rows)))}
    words = ", ".join(f"{name} {part_s:.1f}" for name, part_s in parts.items())
    return [ends["start", 0], ends["step", 2], ends["step", STEPS]], words


def main(small: bool = False) -> None:
    began_s = time.monotonic()
    subprocess.run([sys.executable, "-c", "import torch"], check=True, timeout=LIMIT_S)
    print(f"{card.facts(torch.device('cpu' if small else 'cuda'))}\n\nimport torch: {time.monotonic() - began_s:.1f} s")
    print(f"{'':24}{'met':>8}{'step 1':>8}{f'step {STEPS}':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(FORMS[:1] if small else FORMS, 1):
            own, node = Path(folder) / name, Path(folder) / f"node {name.endswith('another node')}"
            own.mkdir()
            node.mkdir(exist_ok=True)
            os.environ["TMPDIR"] = str(node)
            if (kept := Path(folder) / "compiled" / KEPT).exists() and name.endswith("another node"):
                shutil.copy(kept, own)
            ends_s, parts = started(own, number, train_of(name.startswith("compiled"), small))
            print(f"{name:24}" + "".join(f"{each:8.1f}" for each in ends_s) + f"\n    {parts}", flush=True)


if __name__ == "__main__":
    main("--small" in sys.argv[1:])
