"""The steps of a training with a program of others: each rank writes its own, a JSON line for each."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

BATCH, RANKS = 32, 4
SHARE = BATCH // RANKS  # samples of a rank in a step


class Steps:
    """The process of a rank, and its steps: when, which, and how many ranks took part."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._rank = rank
        (folder / f".pid-{rank}").write_text(str(os.getpid()))
        (folder / f".pid-{rank}").rename(folder / f"pid-{rank}")
        self._file = open(folder / f"steps-{rank}.jsonl", "a", buffering=1)  # noqa: SIM115 (until the process ends)

    def add(self, step: int, ranks: int) -> None:
        self._file.write(json.dumps({"t": time.time(), "step": step, "ranks": ranks}) + "\n")


def read(folder: Path) -> Iterator[dict[str, float]]:
    """The steps of all ranks, as far as their lines are whole."""
    for path in sorted(folder.glob("steps-*.jsonl")):
        yield from (json.loads(line) for line in path.read_text().rpartition("\n")[0].splitlines() if line)
