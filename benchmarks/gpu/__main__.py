"""All that needs a card, the most valuable part first, in nine minutes. docs/reference/gpu-checks.md has the parts.

`make gpu`, or `python -m benchmarks.gpu [--results FOLDER] [--only PART ...]`. A part that fails does not stop the
others; a part that is named may take four times its time. The output is also in benchmarks/results/gpu-CARD-DATE.txt,
line by line, so that a stop leaves what was measured. `--small` runs all parts on the CPU: it shows that they run.
Exit codes: 0 all parts passed, 1 a part failed, 69 there is no card (the checks have run on the CPU), 143 it was
stopped by SIGTERM.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
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
    small: tuple[str, ...] = ()  # the module with arguments for a CPU
    data: str | None = None  # a data set that must be prepared


def throughput(forms: str, limit_s: float) -> Part:
    words = ("benchmarks.gpu.throughput", forms)
    return Part(forms, words, limit_s, (*words, "--device", "cpu", "--small", "--steps", "1"))


CIFAR = ("benchmarks.large_batch", str(RESULTS / "gpu-cifar10.jsonl"), "--study", "cifar10", "--device", "cuda")
CHECK = ("pytest", "-q", "-p", "no:cacheprovider")
ON_CARD = (*CHECK, "-n", "4", "--ignore", "tests/gpu/test_gpu_benchmarks.py", "tests/gpu")
CHECKS = Part("checks", ON_CARD, 150, (*CHECK, "tests/gpu/test_gpu_lars.py"))
OVERLAP, STEM = ("benchmarks.gpu.overlap", "--steps"), "benchmarks.gpu.stem"
SMALL = ("--device", "cpu", "--small")
PARTS = (
    throughput("compiled", 220),
    Part("lars", ("benchmarks.lars", "50", "cuda"), 40, ("benchmarks.lars", "1", "cpu")),
    CHECKS,
    throughput("eager", 80),
    Part("stem", (STEM,), 30, (STEM, *SMALL)),
    Part("start", ("benchmarks.gpu.start",), 120, ("benchmarks.gpu.start", "--small")),
    Part("overlap", (*OVERLAP, "10"), 80, (*OVERLAP, "1", *SMALL, "--ranks", "2", "--batch", "2")),
    throughput("choices", 80),
)
STUDIES = (Part("cifar10", CIFAR, 3 * 3600, data="cifar10"),)  # only if named
WHOLE_S, LEAST_S = 530.0, 10.0
NAMED = 4  # times its limit
SMALL_S = 200.0  # of a part on a CPU


def run(part: Part, say: Say) -> bool:
    """Run a part, and say its output as it comes; whether it passed.

    At its limit, or if this process is stopped, all its processes are killed.
    """
    say(f"== {part.name}: python -m {' '.join(part.words)}")
    if part.data and (why := unprepared(part.data)):
        say(f"{part.name} is left out: {why}")
        return False
    command, over, began_s = [sys.executable, "-m", *part.words], threading.Event(), time.monotonic()
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    ) as process:  # fmt: skip

        def end() -> None:
            over.set()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(part.limit_s, end)
        timer.start()
        try:
            for line in process.stdout or ():
                say(line.rstrip("\n"))
            code = process.wait()
        except BaseException:
            end()
            raise
        finally:
            timer.cancel()
    say(f"== {part.name} took {time.monotonic() - began_s:.0f} s")
    if code:
        say(f"{part.name} failed: " + (f"not done in {part.limit_s:.0f} s" if over.is_set() else f"exit code {code}"))
    return code == 0


def unprepared(name: str) -> str | None:
    """Why a packed data set is not there, and the command that prepares it."""
    named = Named(SOURCES[name])
    return None if named.path().exists() else named.missing(named.path())


def everything(parts: tuple[Part, ...], say: Say, *, whole_s: float = float("inf"), small: bool = False) -> int:
    """Run the parts, all of them in `whole_s`; the exit code."""
    if (why := card.missing()) and not small:
        passed = run(CHECKS, say)
        say(f"benchmarks.gpu: {why}")
        return NO_CARD if passed else FAILED
    say(card.facts(torch.device("cpu" if small else "cuda")))
    ends_s, passed = time.monotonic() + whole_s, True
    for part in parts:
        left_s = ends_s - time.monotonic()
        if left_s < LEAST_S:
            say(f"{part.name} is left out: {whole_s / 60:.0f} minutes are over; name it with --only")
            passed = False
        else:
            passed &= run(replace(part, limit_s=min(part.limit_s, left_s)), say)
    return 0 if passed else FAILED


def stop(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    parser.add_argument("--results", type=Path, help="the folder of gpu-CARD-DATE.txt; benchmarks/results with a card")
    parser.add_argument("--small", action="store_true", help="all parts on the CPU, very small")
    every = (*PARTS, *STUDIES)
    parser.add_argument("--only", nargs="+", choices=[part.name for part in every], help="these parts")
    chosen = parser.parse_args(arguments)
    name = "cpu" if chosen.small else card.short_name()
    folder = chosen.results or (None if name == "cpu" else RESULTS)
    kept = folder / f"gpu-{name}-{time.strftime('%F')}.txt" if folder else None

    def say(line: str) -> None:
        if kept:
            with kept.open("a") as file:
                file.write(line + "\n")
        print(line, flush=True)

    signal.signal(signal.SIGTERM, stop)
    parts: tuple[Part, ...] = PARTS
    if chosen.only:
        parts = tuple(replace(part, limit_s=NAMED * part.limit_s) for part in every if part.name in chosen.only)
    if chosen.small:
        parts = tuple(replace(part, words=part.small, limit_s=SMALL_S) for part in parts if part.small)
    whole_s = float("inf") if chosen.only or chosen.small else WHOLE_S
    try:
        return everything(parts, say, whole_s=whole_s, small=chosen.small)
    except (SystemExit, KeyboardInterrupt):
        say("benchmarks.gpu: stopped; what is above was measured")
        raise


if __name__ == "__main__":
    sys.exit(main())
