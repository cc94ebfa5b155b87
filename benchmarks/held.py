"""The time from `submit` to the first step: ten attempts in a held allocation, and ten submitted to the scheduler.

`python -m benchmarks.held [--site PATH] [--attempts 10] [--ranks 2]`, on a machine with the site's scheduler

Two programs: the shipped training of digits, until it records its first step, and `true`, until rank 0's is started.
Both ways are tried in turns. The time begins before the start of the client's process and ends at times that the ranks
wrote, so the nodes need the clock of this machine. For the digits it also prints when each part ended.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUN = "name: {name}\nsite: {site}\nranks_per_node: {ranks}\ntime: 10m\n{what}\n"
PROGRAMS = {
    "true": "code: none\ncommand: ['true']",
    "digits": "train: {epochs: 1, batch: 32, log_every_steps: 1, optimizer: {lr: 0.1}}",
}
LOCAL = "scheduler: local\nlauncher: spawn\nnode: {ranks: 2, interface: lo}\nstop_before: 10s\n"
PARTS = ("submitted", "supervisor is up", "rank 0 is started", "PyTorch is there, ranks have met")
LONGEST_S = 180.0
LOOK_S = 0.02


def torusrun(folder: Path, *words: str) -> str:
    """The output of a verb."""
    command = [sys.executable, "-m", "torusrun", *words]
    return subprocess.run(
        command, cwd=folder, text=True, stdout=subprocess.PIPE, check=True, timeout=600
    ).stdout.strip()


def first_step_s(folder: Path, name: str, *words: str) -> tuple[float, list[float]]:
    """Seconds from the start of a client to the first step of the run that it submits, and to the ends of PARTS."""
    began_s = time.time()
    run = torusrun(folder, "submit", f"{name}.yaml", *words).split()[0]
    [found] = json.loads(torusrun(folder, "status", run, "--json"))["runs"]
    path = Path(found["folder"])
    while (at_s := _step_s(path) if name == "digits" else _started_s(path)) is None:
        if time.time() > began_s + LONGEST_S:
            raise SystemExit(f"{run} made no step within {LONGEST_S:g} s: {found['reason']}")
        time.sleep(LOOK_S)
    _wait_for_end(path)
    return at_s - began_s, [part_s - began_s for part_s in _parts_s(path)] if name == "digits" else []


def _parts_s(run: Path) -> list[float]:
    """The end of each of PARTS, from the run's ledger, rank 0's record and the first metrics."""
    ledger = {row["event"]: row["t"] for row in map(json.loads, (run / "ledger.jsonl").read_text().splitlines())}
    first = json.loads((run / "metrics.jsonl").read_text().splitlines()[0])
    return [ledger["submitted"], ledger["started"], _started_s(run) or 0.0, first["t"]]


def _step_s(run: Path) -> float | None:
    path = run / "metrics.jsonl"
    lines = path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
    return next((float(row["t"]) for row in map(json.loads, lines) if row["event"] == "step"), None)


def _started_s(run: Path) -> float | None:
    path = run / "attempts/1/ranks/0000.start.json"
    return float(json.loads(path.read_text())["started_s"]) if path.exists() else None


def _wait_for_end(run: Path) -> None:
    until_s = time.monotonic() + LONGEST_S
    while not (run / "attempts/1/end.json").exists() and time.monotonic() < until_s:
        time.sleep(0.2)


def summary(times_s: list[float]) -> str:
    ordered = sorted(times_s)
    return f"{statistics.median(ordered):6.2f}  {ordered[0]:6.2f}  {ordered[-1]:6.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.held")
    parser.add_argument("--site", help="the path of a site; default: this machine")
    parser.add_argument("--attempts", type=int, default=10)
    parser.add_argument("--ranks", type=int, default=2, help="ranks on the node")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.home()) as name:
        folder = Path(name)
        os.environ["XDG_STATE_HOME"] = f"{name}/state"
        site = Path(chosen.site).read_text() if chosen.site else f"{LOCAL}runs: {name}/runs\n"
        (folder / "site.yaml").write_text(site)
        for program, what in PROGRAMS.items():
            text = RUN.format(name=program, site="site.yaml", ranks=chosen.ranks, what=what)
            (folder / f"{program}.yaml").write_text(text)
        held = torusrun(folder, "hold", "digits.yaml", "--time", "1h", "--wait").split()[0]
        try:
            print("seconds from submit to the first step       median     min     max")
            for program in PROGRAMS:
                ways: dict[str, list[str]] = {"held": ["--in", held], "queue": []}
                times_s: dict[str, list[float]] = {way: [] for way in ways}
                parts_s: dict[str, list[list[float]]] = {way: [] for way in ways}
                for _ in range(chosen.attempts):
                    for way, words in ways.items():
                        step_s, ends_s = first_step_s(folder, program, *words)
                        times_s[way].append(step_s)
                        parts_s[way].append(ends_s)
                for way, found in times_s.items():
                    print(
                        f"{program:8} {way:8} {chosen.attempts} attempts of {chosen.ranks} ranks  {summary(found)}",
                        flush=True,
                    )
                    for part, ends in zip(PARTS, zip(*parts_s[way], strict=True), strict=False):
                        print(f"    {part:44}  {summary(list(ends))}", flush=True)
            print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        finally:
            torusrun(folder, "cancel", held)


if __name__ == "__main__":
    main()
