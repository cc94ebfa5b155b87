"""All that needs a card, the most valuable part first, in nine minutes. docs/reference/gpu-checks.md has the parts.

`make gpu`, or `python -m benchmarks.gpu [--results] [--only PART ...]`. A part that fails does not stop the others; a
part that is named may take its whole time. `--results` also writes the output to benchmarks/results/gpu-DATE-TIME.txt,
line by line, so that it is there after a stop. Exit codes: 0 all parts passed, 1 a part
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
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from benchmarks.gpu import card
from torusrun.training.data.named import Named
from torusrun.training.data.packed_file import SOURCES

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
CHECKS = Part("checks", ("pytest", "-q", "-n", "4", "-p", "no:cacheprovider", "tests/gpu"), 900)
PARTS = (
    Part("throughput", ("benchmarks.gpu.throughput",), 600),
    CHECKS,
    Part("lars", ("benchmarks.lars", "50", "cuda"), 60),
    Part("overlap", ("benchmarks.gpu.overlap", "--steps", "10"), 120),
    Part("start", ("benchmarks.gpu.start",), 240),
    Part("choices", ("benchmarks.gpu.throughput", "--choices"), 300),
)
STUDIES = (Part("cifar10", CIFAR, 3 * 3600, data="cifar10"),)  # only if named
WHOLE_S, LEAST_S = 540.0, 10.0


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


def everything(parts: tuple[Part, ...], say: Say, whole_s: float = float("inf")) -> int:
    """Run the parts, all of them in `whole_s`; the exit code."""
    if why := card.missing():
        passed = run(CHECKS, say)
        say(f"benchmarks.gpu: {why}")
        return NO_CARD if passed else FAILED
    say(card.facts(torch.device("cuda")))
    ends_s, passed = time.monotonic() + whole_s, True
    for part in parts:
        left_s = ends_s - time.monotonic()
        if left_s < LEAST_S:
            say(f"{part.name} is left out: {whole_s / 60:.0f} minutes are over; name it with --only")
            passed = False
        else:
            passed &= run(replace(part, limit_s=min(part.limit_s, left_s)), say)
    return 0 if passed else FAILED


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    parser.add_argument("--results", action="store_true", help="write benchmarks/results/gpu-DATE.txt, too")
    every = (*PARTS, *STUDIES)
    parser.add_argument("--only", nargs="+", choices=[part.name for part in every], help="these parts")
    chosen = parser.parse_args()
    kept = RESULTS / f"gpu-{time.strftime('%F-%H%M')}.txt" if chosen.results and not card.missing() else None

    def say(line: str) -> None:
        print(line, flush=True)
        if kept:
            with kept.open("a") as file:
                file.write(line + "\n")

    if chosen.only:
        return everything(tuple(part for part in every if part.name in chosen.only), say)
    return everything(PARTS, say, WHOLE_S)


if __name__ == "__main__":
    sys.exit(main())
