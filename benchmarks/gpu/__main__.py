"""All that needs a card: the checks of tests/gpu, then the benchmarks. docs/reference/gpu-checks.md has the parts.

`make gpu`, or `python -m benchmarks.gpu [--results] [--only PART ...]`. A part that fails does not stop the others.
`--results` also writes all output to benchmarks/results/gpu-DATE-TIME.txt. Exit codes: 0 all parts passed, 1 a part
failed, 69 there is no card (the checks have run on the CPU).
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.gpu import card
from torusrun.training.data.packed.named import Named
from torusrun.training.data.packed.sources import SOURCES

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks/results"
FAILED, NO_CARD = 1, 69  # 69 as sysexits' EX_UNAVAILABLE
Say = Callable[[str], None]


@dataclass(frozen=True)
class Part:
    """A module with its arguments, and the longest time that it may take."""

    name: str
    words: tuple[str, ...]
    limit_s: float
    data: str | None = None  # a data set that must be prepared


CIFAR = ("benchmarks.large_batch", str(RESULTS / "gpu-cifar10.jsonl"), "--study", "cifar10", "--device", "cuda")
CHECKS = Part("checks", ("pytest", "-q", "-p", "no:cacheprovider", "tests/gpu"), 900)
PARTS = (
    Part("lars", ("benchmarks.lars", "50", "cuda"), 300),
    Part("throughput", ("benchmarks.gpu.throughput",), 900),
    Part("overlap", ("benchmarks.gpu.overlap",), 600),
    Part("cifar10", CIFAR, 3 * 3600, data="cifar10"),
)


def run(part: Part, say: Say) -> bool:
    """Run a part, and say its output as it comes; whether it passed. At its limit all its processes are killed."""
    say(f"== {part.name}: python -m {' '.join(part.words)}")
    if part.data and (why := unprepared(part.data)):
        say(f"{part.name} is left out: {why}")
        return False
    command, over = [sys.executable, "-m", *part.words], threading.Event()
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:

        def end() -> None:
            over.set()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(part.limit_s, end)
        timer.start()
        for line in process.stdout or ():
            say(line.rstrip("\n"))
        timer.cancel()
        code = process.wait()
    if code:
        say(f"{part.name} failed: " + (f"not done in {part.limit_s:.0f} s" if over.is_set() else f"exit code {code}"))
    return code == 0


def unprepared(name: str) -> str | None:
    """Why a packed data set is not there, and the command that prepares it."""
    named = Named(SOURCES[name])
    return None if named.path().exists() else named.missing(named.path())


def everything(parts: tuple[Part, ...], say: Say) -> int:
    """The exit code."""
    passed = run(CHECKS, say)
    if why := card.missing():
        say(f"benchmarks.gpu: {why}")
        return NO_CARD if passed else FAILED
    say(card.facts(torch.device("cuda")))
    passed &= all([run(part, say) for part in parts])
    return 0 if passed else FAILED


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    parser.add_argument("--results", action="store_true", help="write benchmarks/results/gpu-DATE.txt, too")
    parser.add_argument("--only", nargs="+", choices=[part.name for part in PARTS], help="these benchmarks")
    chosen = parser.parse_args()
    kept = RESULTS / f"gpu-{time.strftime('%F-%H%M')}.txt" if chosen.results and not card.missing() else None

    def say(line: str) -> None:
        print(line, flush=True)
        if kept:
            with kept.open("a") as file:
                file.write(line + "\n")

    return everything(tuple(part for part in PARTS if not chosen.only or part.name in chosen.only), say)


if __name__ == "__main__":
    sys.exit(main())
