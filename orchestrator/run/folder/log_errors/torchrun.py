"""The table of failures that torchrun writes at its end: which of its workers failed first, and how."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from torusrun.orchestrator.base.signals import signal_name
from torusrun.orchestrator.run.folder.log_errors.lines import TRACEBACK, bare

EDGE = re.compile(r"={20,}$")
ROOT = re.compile(r"Root Cause( \(first observed failure\))?:$")
RANK = re.compile(r"\s*rank\s*: (\d+) \(local_rank: (\d+)\)")
EXIT = re.compile(r"\s*exitcode\s*: (-?\d+) ")


@dataclass(frozen=True)
class Worker:
    """The worker of a torchrun that failed first: its rank, its local rank, and its exit code (negative: a signal).

    `error` is its exception, if it has recorded one for torchrun.
    """

    rank: int
    local_rank: int
    exit_code: int
    error: str = ""

    @property
    def signal(self) -> int | None:
        return -self.exit_code if self.exit_code < 0 else None

    @property
    def words(self) -> str:
        how = f"was killed by {signal_name(self.signal)}" if self.signal else f"ended with exit code {self.exit_code}"
        return f"torchrun's rank {self.rank} {how}"


def table(lines: Sequence[str]) -> tuple[Worker | None, range]:
    """(the worker that failed first by the last table in these lines, the lines of the table); (None, none of them)."""
    if not any("Root Cause" in line for line in lines):
        return None, range(0)
    texts = [bare(line)[1].rstrip() for line in lines]
    root = next((n for n in reversed(range(len(texts))) if ROOT.match(texts[n])), len(texts))
    begin = next((n for n in reversed(range(root)) if EDGE.match(texts[n])), root)
    end = next((n for n in range(root, len(texts)) if EDGE.match(texts[n])), len(texts))
    rows = texts[root:end]
    rank, code = (next(filter(None, map(pattern.match, rows)), None) for pattern in (RANK, EXIT))
    if not (rank and code):
        return None, range(0)
    traced = [row.strip() for n, row in enumerate(rows) if any(TRACEBACK in before for before in rows[:n])]
    error = next((row for row in reversed(traced) if row), "")
    return Worker(int(rank[1]), int(rank[2]), int(code[1]), error), range(begin, end + 1)
