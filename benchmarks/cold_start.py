"""The start-up time of `torusrun`, as ratios to an empty Python program, measured in turns.

`python -m benchmarks.cold_start [ROUNDS]`
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

CASES = {
    "python -c pass": ["-c", "pass"],
    "import argparse": ["-c", "import argparse"],
    "torusrun --help": ["-m", "orchestrator", "--help"],
    "torusrun status (no runs)": ["-m", "orchestrator", "status"],
    "torusrun plan": ["-m", "orchestrator", "plan", "examples/digits.yaml"],
    "torusrun submit --dry-run": ["-m", "orchestrator", "submit", "examples/digits.yaml", "--dry-run"],
    "import submitit": ["-c", "import submitit"],
}


def seconds(arguments: list[str], home: str) -> float:
    """The wall time of one start."""
    started_s = time.perf_counter()
    env = {**os.environ, "HOME": home}
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True, timeout=60, env=env)
    return time.perf_counter() - started_s


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with tempfile.TemporaryDirectory() as home:
        taken: dict[str, list[float]] = {name: [] for name in CASES}
        for _ in range(rounds + 1):  # the first round warms the file cache and is left out
            for name, arguments in CASES.items():
                taken[name].append(seconds(arguments, home))
    medians = {name: statistics.median(times[1:]) for name, times in taken.items()}
    base = medians["python -c pass"]
    print(f"median of {rounds} starts, in turns; Python {sys.version.split()[0]}")
    for name, median in medians.items():
        print(f"{name:28}{median * 1e3:8.1f} ms{median / base:8.2f} x python -c pass")


if __name__ == "__main__":
    main()
