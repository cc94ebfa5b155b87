"""The start-up time of `torusrun`, as ratios to an empty Python program: each command is a process, measured in turns.

`python -m benchmarks.cold_start [ROUNDS] [--runs N]`

With N runs in the index, `status` is measured beside submitit's check of as many ended jobs. The runs are copies of one
that is COMPLETED. submitit's jobs have their results, and it checks for each whether it is done. The very first status
reads all folders.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TORUSRUN = ["-m", "torusrun"]
EMPTY = {"python -c pass": ["-c", "pass"]}
CASES = {
    "import argparse": ["-c", "import argparse"],
    "torusrun --help": [*TORUSRUN, "--help"],
    "torusrun status (no runs)": [*TORUSRUN, "status"],
    "torusrun plan": [*TORUSRUN, "plan", "examples/digits.yaml"],
    "torusrun submit --dry-run": [*TORUSRUN, "submit", "examples/digits.yaml", "--dry-run"],
    "import submitit": ["-c", "import submitit"],
}
WITH_RUNS = {
    "torusrun status": [*TORUSRUN, "status"],
    "torusrun status last": [*TORUSRUN, "status", "last"],
    "torusrun status --state failed": [*TORUSRUN, "status", "--state", "failed"],
    "torusrun status --all": [*TORUSRUN, "status", "--all"],
}
COPIED = ("plan.json", "ledger.jsonl", "metrics.jsonl", "attempts/1/plan.json", "attempts/1/end.json")
SUBMITIT = """
import sys
from pathlib import Path
from submitit.local.local import LocalJob
jobs = [LocalJob(Path(sys.argv[1]) / str(n), str(n)) for n in range(int(sys.argv[2]))]
assert all(job.done() for job in jobs)
"""


def make(folder: Path, number: int) -> None:
    """Make runs and jobs in `folder`, which is the home of all later commands."""
    from tests.unit.run_folders import make, write_specs
    from torusrun.orchestrator.base.states import State
    from torusrun.orchestrator.run.folder import index
    from torusrun.orchestrator.run.folder.records import End

    one = make(write_specs(folder), End(State.COMPLETED, "all ranks are done"))
    texts = {name: (one.folder / name).read_text() for name in COPIED}
    for n in range(number - 1):
        run_id = f"copy-{n:05d}"
        copy = one.folder.with_name(run_id)
        (copy / "attempts/1").mkdir(parents=True)
        for name, text in texts.items():
            (copy / name).write_text(text.replace(one.run_id, run_id))
        (index.place() / run_id).symlink_to(copy)
    for n in range(number):
        job = folder / "jobs" / str(n)
        job.mkdir(parents=True)
        (job / f"{n}_0_result.pkl").write_bytes(b"")


def seconds(arguments: list[str]) -> float:
    """The wall time of one start."""
    started_s = time.perf_counter()
    command = [sys.executable, *arguments]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, timeout=600)
    return time.perf_counter() - started_s


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cold_start")
    parser.add_argument("rounds", metavar="ROUNDS", type=int, nargs="?", default=15)
    parser.add_argument("--runs", metavar="N", type=int, default=0)
    chosen = parser.parse_args()
    cases, medians = {**EMPTY, **CASES}, dict[str, float]()
    with tempfile.TemporaryDirectory() as home:
        os.environ.update(HOME=home, XDG_STATE_HOME=f"{home}/state")
        if chosen.runs:
            make(Path(home), chosen.runs)
            medians["the very first status"] = seconds(WITH_RUNS["torusrun status"])
            submitit = {"submitit: done() of each": ["-c", SUBMITIT, f"{home}/jobs", str(chosen.runs)]}
            cases = {**EMPTY, **WITH_RUNS, **submitit}
        taken: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(chosen.rounds + 1):  # the first round warms the file cache and is left out
            for name, arguments in cases.items():
                taken[name].append(seconds(arguments))
    medians |= {name: statistics.median(times[1:]) for name, times in taken.items()}
    what = f"{chosen.runs} runs, median of {chosen.rounds} starts, in turns"
    print(f"{what}; {os.cpu_count()} cores, Python {sys.version.split()[0]}")
    for name, median in medians.items():
        print(f"{name:32}{median * 1e3:8.1f} ms{median / medians['python -c pass']:8.2f} x python -c pass")


if __name__ == "__main__":
    main()
