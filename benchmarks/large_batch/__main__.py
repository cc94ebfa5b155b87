"""The command: see the package."""

from __future__ import annotations

import argparse
import math
import platform
import sys
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import torch

from benchmarks.large_batch import __doc__ as about
from benchmarks.large_batch.cell import cells
from benchmarks.large_batch.results import add, following, found, missing, read
from benchmarks.large_batch.study import STUDIES, Study
from benchmarks.large_batch.trained import accuracy


def train_all(study: Study, results: Path, device: torch.device, minutes: float = math.inf) -> None:
    """Run what `results` lacks, and add each result. No training begins after that many minutes."""
    last_s = time.monotonic() + 60 * minutes
    for cell in cells(study):
        while case := following(cell, scores := read(results), study):
            if time.monotonic() > last_s:
                return
            began_s = time.perf_counter()
            scored = accuracy(case.train(study), device)
            spent_s = round(time.perf_counter() - began_s, 1)
            machine = torch.cuda.get_device_name() if device.type == "cuda" else platform.machine()
            facts = {"spent_s": spent_s, "day": str(date.today()), "torch": torch.__version__, "machine": machine}
            add(results, case, scored, facts)
            print(f"{case} {scored:.2f} % {spent_s} s", file=sys.stderr, flush=True)
        if each := found(cell, scores, study):
            print(
                f"{cell}: {each.mean:.2f} +- {each.error:.2f} %, 2 ** {each.doubled} x the rate of its rule", flush=True
            )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.large_batch", description=about, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("--study", choices=STUDIES, default="mnist")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no training after so many minutes")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    study = STUDIES[chosen.study]
    train_all(study, chosen.results, torch.device(chosen.device), chosen.minutes)
    if left := len(missing(study, read(chosen.results))):
        sys.exit(f"{left} cells are not complete: the same command continues them")


if __name__ == "__main__":
    main()
