"""A sweep of 24 trainings of which three are killed: what a resume submits, and the cost beside its forecast.

`python -m benchmarks.sweep [--place local] [--members 24] [--at-once 2] [--results]`; a place is as in
`python -m tests.campaign`. The place is calibrated first, so that its trainings have a forecast, and one training runs
alone, so that the cost contains starts and stops.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from benchmarks.under_faults.figures import markdown
from tests.campaign.places import WHY_NOT, places
from tests.e2e.places import Place, ledger

RESULTS = Path(__file__).parent / "results"
LOOK_S = 0.3
WITHIN_S = 1800.0


def main() -> int:
    asked = _asked()
    with ExitStack() as stack:
        ((name, place),) = places([asked.place], stack).items()
        found = measure(place, asked)
    about = f"{time.strftime('%Y-%m-%d %H:%M')}, {name}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    title = f"A sweep of {asked.members} with {len(asked.kill)} planted failures, {asked.at_once} at once"
    text = f"# {title}\n\n{about}\n\n{markdown([*found], [[*found.values()]])}\n"
    print(text)
    if asked.results:
        (asked.results / f"sweep-{name}-{time.strftime('%Y-%m-%d')}.md").write_text(text)
    return 0


def measure(place: Place, asked: argparse.Namespace) -> dict[str, object]:
    """Submit the sweep, kill rank 0 of some members, and resume."""
    place.write_spec()
    site = place.site("measured.yaml")
    said = place.torusrun("calibrate", "run.yaml", "--site", f"./{site}", timeout_s=600)
    assert said.returncode == 0, said.stderr
    rates = ",".join(f"{0.02 * (1 + number):.2f}" for number in range(asked.members))
    words = ("run.yaml", "--site", f"./{site}", "--set", f"train.epochs={asked.epochs}", "--sweep",
             f"train.optimizer.lr={rates}", "--set", f"sweep.at_once={asked.at_once}")  # fmt: skip
    alone = place.torusrun("submit", *words[:5], "--wait", timeout_s=WITHIN_S)
    assert alone.returncode == 0, alone.stderr
    begun_s = time.time()
    said = place.torusrun("submit", *words)
    assert said.returncode == 0, said.stderr
    sweep = said.stdout.split()[0]
    _kill(place, sweep, {*asked.kill})
    states = [run["state"] for run in _members(place, sweep)]
    first_s = time.time() - begun_s
    before = _table(place, sweep)
    said = place.torusrun("resume", sweep, "--wait", timeout_s=WITHIN_S)
    assert said.returncode == 0, said.stderr
    submitted = [len(ledger(Path(run["folder"]), "submitted")) for run in _members(place, sweep)]
    print(place.torusrun("status", sweep).stdout)
    return {
        "failed": states.count("FAILED"),
        "submitted again": [number for number, times in enumerate(submitted) if times > 1],
        "completed at the end": [run["state"] for run in _members(place, sweep)].count("COMPLETED"),
        "seconds of the first round": f"{first_s:.0f}",
        "start and stop of a member, s": f"{before['cost']['at_submit']['start_s']:.1f} expected",
        "node-hours": _both(before["cost"], "node_hours", 1.0),
        "minutes": _both(before["cost"], "wall_s", 60.0),
    }


def _both(cost: dict[str, Any], name: str, unit: float) -> str:
    return f"{cost['at_submit'][name] / unit:.3g} expected, {cost['so_far'][name] / unit:.3g} taken"


def _kill(place: Place, sweep: str, left: set[int]) -> None:
    """Kill rank 0 of these members as soon as it has started, and wait until all members are over."""
    until_s = time.monotonic() + WITHIN_S
    while time.monotonic() < until_s:
        runs = _members(place, sweep)
        for number in sorted(left):
            with suppress(OSError, AssertionError):  # it has not started, or has ended
                record = Path(runs[number]["folder"]) / "attempts/1/ranks/0000.start.json"
                rank = json.loads(record.read_text())
                place.kill(rank["host"], rank["pid"])
                left.remove(number)
        if not {run["state"] for run in runs} & {"PENDING", "RUNNING", "UNKNOWN"}:
            return
        time.sleep(LOOK_S)
    raise SystemExit(f"the sweep is not over after {WITHIN_S:g} s")


def _members(place: Place, sweep: str) -> list[dict[str, Any]]:
    said = place.torusrun("status", sweep, "--json")
    assert said.returncode == 0, said.stderr
    runs: list[dict[str, Any]] = json.loads(said.stdout)["runs"]
    return runs


def _table(place: Place, sweep: str) -> dict[str, Any]:
    said = place.torusrun("status", sweep, "--json")
    assert said.returncode == 0, said.stderr
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep", description=__doc__.partition("\n")[0])
    parser.add_argument("--place", choices=list(WHY_NOT), default="local")
    parser.add_argument("--members", type=int, default=24)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--kill", type=int, nargs="*", default=[3, 11, 19])
    parser.add_argument("--results", type=Path, nargs="?", const=RESULTS, help="the folder for the table")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
