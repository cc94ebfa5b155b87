"""The start of an attempt on a card: seconds from the start of its process to its events, for ResNet-50 at batch 256.

`python -m benchmarks.gpu.start`, and with `--small` on a CPU. "met": the ranks have met, and the network and data are
there. On a card a step is done when the next one is reported, so "step 1" is the time of step 2. Compiled attempts keep
what was compiled in one folder, at first empty.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import card
from tests.gpu.test_gpu_training import attempt
from torusrun.training.recipe.train import DataKeys, ModelKeys, OptimizerKeys, Train

BATCH, STEPS, LIMIT_S = 256, 8, 60.0
FORMS = {"eager": False, "eager, again": False, "compiled": True, "compiled, again": True}


def train_of(compiled: bool, small: bool) -> Train:
    data = DataKeys("synthetic", {"samples": STEPS * BATCH, "test_samples": 64}, size=32 if small else 224)
    return Train(
        model=ModelKeys("resnet-small" if small else "resnet50"), data=data, optimizer=OptimizerKeys("lars"), epochs=1,
        batch=BATCH, compile=compiled, log_every_steps=1, precision="bf16",
    )  # fmt: skip


def times_s(folder: Path, number: int, train: Train) -> list[float]:
    """From the start of the process to the meeting, the end of the first step, and the last step."""
    began_s = time.time()
    rows: list[dict[str, Any]] = attempt(folder, number, train)
    ends = {(row["event"], row.get("step")): row["t"] - began_s for row in rows}
    return [ends["start", 0], ends["step", 2], ends["step", STEPS]]


def main(small: bool = False) -> None:
    forms = {name: compiled for name, compiled in FORMS.items() if not small or name == "eager"}
    began_s = time.monotonic()
    subprocess.run([sys.executable, "-c", "import torch"], check=True, timeout=LIMIT_S)
    print(f"{card.facts(torch.device('cpu' if small else 'cuda'))}\n\nimport torch: {time.monotonic() - began_s:.1f} s")
    print(f"{'':20}{'met':>8}{'step 1':>8}{f'step {STEPS}':>8}")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(folder) / "compiled")
        for number, (name, compiled) in enumerate(forms.items(), 1):
            own = Path(folder) / name
            own.mkdir()
            ends_s = times_s(own, number, train_of(compiled, small))
            print(f"{name:20}" + "".join(f"{each:8.1f}" for each in ends_s), flush=True)


if __name__ == "__main__":
    main("--small" in sys.argv[1:])
