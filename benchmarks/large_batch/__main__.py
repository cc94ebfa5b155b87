"""The command: see the package."""

from __future__ import annotations

import argparse
import platform
import sys
import time
from datetime import date
from pathlib import Path

import torch

from benchmarks.large_batch import __doc__ as about
from benchmarks.large_batch.cell import cells
from benchmarks.large_batch.results import add, following, missing, read
from benchmarks.large_batch.trained import accuracy


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.large_batch", description=about, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--until", metavar="HH:MM", default="", help="start no training after this time of today")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    wanted, scores = list(cells()), read(chosen.results)
    for cell in wanted:
        while case := following(cell, scores):
            if chosen.until and time.strftime("%H:%M") >= chosen.until:
                left = len(missing(wanted, scores))
                sys.exit(f"{left} of {len(wanted)} cells are not complete: the same command continues them")
            began_s = time.perf_counter()
            found = accuracy(case.train())
            spent_s = round(time.perf_counter() - began_s, 1)
            machine = {"day": str(date.today()), "torch": torch.__version__, "machine": platform.machine()}
            add(chosen.results, case, found, {"spent_s": spent_s, **machine})
            scores = read(chosen.results)
            print(f"{case} {found:.2f} % {spent_s} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
