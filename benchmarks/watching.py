"""Many terminals that watch many runs: the number of queries to the scheduler, and the cost of watching.

`python -m benchmarks.watching [--runs 1000] [--terminals 20] [--seconds 60]`, as an ordinary user of Slurm

The runs have real jobs, which are held and never start. Each terminal is `torusrun watch` of all runs. A script with
the scheduler's name on PATH records each query and passes it on. The jobs are cancelled at the end.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

QUESTIONS = ("squeue", "sacct")
INTERVAL_S = 10.0


def hold_jobs(folder: Path, number: int) -> list[str]:
    """Submit held jobs; returns their ids."""
    script = folder / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH --output=/dev/null\ntrue\n")
    command = ["sbatch", "--parsable", "--hold", str(script)]
    return [subprocess.run(command, text=True, capture_output=True, check=True).stdout.strip() for _ in range(number)]


def make_runs(folder: Path, jobs: list[str]) -> None:
    """Make a run in the index for each job, in its state after submission."""
    from torusrun.orchestrator.base.json_files import write_json
    from torusrun.orchestrator.run.folder import index, ledger
    from torusrun.orchestrator.run.folder.events import Submitted, Submitting
    from torusrun.orchestrator.run.folder.run_folder import RunFolder
    from torusrun.orchestrator.run.plan.plan import plan

    (folder / "site.yaml").write_text(
        f"scheduler: slurm\nlauncher: srun\nruns: {folder}/runs\npython: /bin/true\npoll_interval: {INTERVAL_S:g}s\n"
    )
    (folder / "run.yaml").write_text("name: watched\nsite: site.yaml\ncommand: ['true']\ncode: none\n")
    for job in jobs:
        made = plan(folder / "run.yaml")
        run = RunFolder(made.folder)
        with index.announced(run):
            run.attempt(1).folder.mkdir(parents=True)
            write_json(run.plan, made.as_json())
        ledger.append(run.ledger, Submitting(1, name=made.run_id))
        ledger.append(run.ledger, Submitted(1, job, "slurm"))


def noting_commands(folder: Path) -> Path:
    """A folder of scripts that record each call, and then call the command with their name."""
    (folder / "bin").mkdir()
    for name in QUESTIONS:
        script = folder / "bin" / name
        script.write_text(f'#!/bin/sh\necho {name} >> {folder}/asked\nexec {shutil.which(name)} "$@"\n')
        script.chmod(0o755)
    return folder / "bin"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.watching")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--terminals", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ.update(HOME=name, XDG_STATE_HOME=f"{name}/state")
        jobs = hold_jobs(folder, chosen.runs)
        try:
            make_runs(folder, jobs)
            watch(folder, chosen.runs, chosen.terminals, chosen.seconds)
        finally:
            subprocess.run(["scancel", *jobs], check=False)


def watch(folder: Path, runs: int, number: int, for_s: float) -> None:
    env = {**os.environ, "PATH": f"{noting_commands(folder)}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "torusrun", "watch", "watched-*"]
    began_s = time.monotonic()
    terminals = [
        subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(number)
    ]
    time.sleep(for_s)
    gone = sum(terminal.poll() is not None for terminal in terminals)
    took_s = time.monotonic() - began_s
    for terminal in terminals:
        terminal.terminate()
    for terminal in terminals:
        terminal.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    asked = Counter((folder / "asked").read_text().split())
    intervals = math.ceil(took_s / INTERVAL_S)
    print(f"{number} terminals watch {runs} runs for {took_s:.0f} s; {gone} of them ended by themselves")
    words = ", ".join(f"{n} x {name}" for name, n in asked.items())
    print(f"asked: {words}, in {intervals} intervals of {INTERVAL_S:g} s")
    print(f"CPU of all terminals: {(used.ru_utime + used.ru_stime):.1f} s, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
