"""`torusrun status` with many runs in the index, beside submitit's check of as many ended jobs.

`python -m benchmarks.many_runs [--runs 10000] [--rounds 7]`

Each command is its own process, measured in turns. The runs are copies of one that is COMPLETED. submitit's jobs have
their results, and it checks for each whether it is done. The very first status reads all folders.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

COPIED = ("plan.json", "ledger.jsonl", "metrics.jsonl", "attempts/1/plan.json", "attempts/1/end.json")
TORUSRUN = ["-m", "orchestrator"]
SUBMITIT = """
import sys
from pathlib import Path
from submitit.local.local import LocalJob
jobs = [LocalJob(Path(sys.argv[1]) / str(n), str(n)) for n in range(int(sys.argv[2]))]
assert all(job.done() for job in jobs)
"""


def make(folder: Path, number: int) -> None:
    """Make runs and jobs in `folder`, which is the home of all later commands."""
    from orchestrator.base.states import State
    from orchestrator.runs.folder import index
    from orchestrator.runs.folder.records import End
    from tests.unit.run_folders import make, write_specs

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


def seconds(arguments: list[str], env: Mapping[str, str]) -> float:
    started_s = time.perf_counter()
    command = [sys.executable, *arguments]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, timeout=600, env=env)
    return time.perf_counter() - started_s


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_runs")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ.update(HOME=home, XDG_STATE_HOME=f"{home}/state")
        make(Path(home), chosen.runs)
        cases = {
            "python -c pass": ["-c", "pass"],
            "torusrun status": [*TORUSRUN, "status"],
            "torusrun status last": [*TORUSRUN, "status", "last"],
            "torusrun status --state failed": [*TORUSRUN, "status", "--state", "failed"],
            "torusrun status --all": [*TORUSRUN, "status", "--all"],
            "submitit: done() of each": ["-c", SUBMITIT, f"{home}/jobs", str(chosen.runs)],
        }
        first_s = seconds(cases["torusrun status"], os.environ)
        taken: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(chosen.rounds):
            for name, arguments in cases.items():
                taken[name].append(seconds(arguments, os.environ))
    medians = {name: statistics.median(times) for name, times in taken.items()}
    base = medians["python -c pass"]
    machine = f"{os.cpu_count()} cores, Python {sys.version.split()[0]}"
    print(f"{chosen.runs} runs, median of {chosen.rounds} in turns, {machine}")
    print(f"{'the first look ever':32}{first_s * 1e3:8.0f} ms{first_s / base:8.1f} x python -c pass")
    for name, median in medians.items():
        print(f"{name:32}{median * 1e3:8.0f} ms{median / base:8.1f} x python -c pass")


if __name__ == "__main__":
    main()
