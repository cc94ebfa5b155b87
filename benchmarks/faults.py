"""Trainings under faults with nobody to help them: what each fault costs, and the share of productive time.

`python -m benchmarks.faults single [--place local] [--seed 1] [--faults 200]`: faults of each kind at random steps
`python -m benchmarks.faults ettr [--mean 60,15] [--minutes 5] [--peers NAME=PYTHON,...]`: killed ranks at random times
`python -m benchmarks.faults chain [--place slurm] [--epochs 130] [--limit 15]`: one submit over many time limits
`python -m benchmarks.faults roles [--place local] [--seed 1] [--faults 20]`: faults in any role of a tiny GRPO

All print a table and write it, with all values, into `--results FOLDER`. The seed gives kinds, steps, ranks and times.
A place is as in `python -m tests.campaign`. benchmarks/under_faults/peers.py says how to install a peer.

`single` measures in each run the same number of faults, one after the other. The ETTR is the progress under faults, by
the speed of the steps of the same training that no fault, restart or checkpoint disturbed. A rank
that is due to be killed during a restart is killed as soon as it is there, as Daly's formula has it. `chain` gives each
attempt so many seconds until it gets a request to stop.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.under_faults import peers, roles, runs, single, stretch
from benchmarks.under_faults.chain import chain
from benchmarks.under_faults.figures import arrivals, best_interval_s, bound, markdown, of, share
from benchmarks.under_faults.peers import Peer
from benchmarks.under_faults.single import Struck
from tests.campaign.faults import KINDS
from tests.campaign.places import WHY_NOT, places
from tests.campaign.schedule import RANKS, schedule
from tests.e2e.places import BATCH, Place

# The kinds after which a run should continue by itself: no request of a user, and harm that is over or can be left out.
KIND_NAMES = ("kill-rank", "segv-rank", "kill-wrapper", "stop-rank", "bad-python", "kill-supervisor", "kill-launcher",
              "kill-shell", "node-dies-other", "node-dies-first", "link-cut-other")  # fmt: skip
OFTEN = "keep_going={attempts: 20, without_progress: 20}"  # 20: a fault often strikes a restart
OURS = {"torusrun": [OFTEN], "torusrun, memory": [OFTEN, "train.checkpoints.memory=true"]}
Found = Iterator[tuple[str, str, dict[str, Any]]]  # title, table and values of what is measured so far
RESULTS = Path(__file__).parent / "results"
FIRST_LOOK_S = 15.0  # at a training without faults, for the interval of checkpoints
NO_EVALUATION = f"train.evaluate.first={runs.NEVER}"


def main() -> int:
    asked = _asked()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # unwinds: trainings end, labs stop
    about, day = _about(), time.strftime("%Y-%m-%d")
    with ExitStack() as stack:
        ((name, place),) = places([asked.place], stack).items()
        for title, table, values in MEASURE[asked.what](asked, name, place):  # so far: a measurement may be killed
            now = f"{about}; load {os.getloadavg()[0]:.1f} at the end"
            text = f"# {title}\n\n{now}\n\n{table}\n"
            if asked.results:
                path = asked.results / f"faults-{asked.what}-{name}-{day}"
                path.with_suffix(".md").write_text(text)
                path.with_suffix(".json").write_text(json.dumps({"about": now, **values}, indent=1) + "\n")
    print(f"\n{text}")
    return 0


def at_steps(asked: argparse.Namespace, name: str, place: Place) -> Found:
    """Strike runs with faults of all kinds at random steps."""
    kinds = [kind for kind in asked.kinds if KINDS[kind].possible(place)]
    planned = single.in_runs(schedule(asked.seed, asked.faults, {name: kinds}), asked.per_run)
    words = [f"train.epochs={single.epochs(asked.per_run)}", NO_EVALUATION, *asked.settings]
    whole = runs.undisturbed(place, words)
    rows: list[Struck] = []
    for faults in planned:
        struck = single.strike_all(place, faults, whole, [*words[:2], _keep_going(place, 20, 3), *asked.settings])
        rows += struck
        print(*map(_line, struck), sep="\n", flush=True)
        title = f"{len(rows)} faults at random steps on {name}, seed {asked.seed}, {asked.per_run} in a run"
        yield title, _single_table(kinds, rows), {"rows": [row.as_json() for row in rows]}


def _line(row: Struck) -> str:
    good = "recovered" if row.recovered else "MISSED"
    bits = "same bits" if row.identical else "OTHER BITS"
    times = [of([value]).split()[0] for value in (row.detected_s, row.next_step_s)]
    figures = f"detected after {times[0]} s, next step after {times[1]} s, {row.lost} steps lost"
    what = f"{row.run} {row.planned.kind} rank {row.planned.rank} step {row.step}"
    return f"{what}: {good}, {bits}, {figures}{f'; {row.note}' if row.note else ''}"


def _single_table(kinds: Sequence[str], rows: Sequence[Struck]) -> str:
    titles = ["fault", "faults", "recovered", "same bits", "steps lost", "s to detect", "s to next step",
              "s to caught up"]  # fmt: skip
    lines = []
    for kind in (*kinds, "all"):
        own = [row for row in rows if kind in (row.planned.kind, "all")]
        recovered, same = sum(row.recovered for row in own), sum(row.identical for row in own)
        figures = [of([r.lost for r in own], 0), of([r.detected_s for r in own]), of([r.next_step_s for r in own])]
        lines.append([kind, len(own), recovered, same, *figures, of([row.caught_up_s for row in own])])
    missed = [f"- {_line(row)}; {row.cause}: {row.reason}" for row in rows if not (row.recovered and row.identical)]
    return "\n\n".join(
        [markdown(titles, lines), "Medians (worst).", "\n".join(["Missed:", *missed]) if missed else "None was missed."]
    )


def at_times(asked: argparse.Namespace, name: str, place: Place) -> Found:
    """Strike a training at random times, then the peers with the same faults."""
    duration_s, (saved_s, step_s) = asked.minutes * 60, _checkpoint(asked, place)
    lines: list[Line] = []
    for mean_s in asked.mean:
        faults = [*arrivals(asked.seed, mean_s, duration_s, RANKS)]
        every = max(round(best_interval_s(saved_s, mean_s) / step_s), 2)
        for ours, own in OURS.items():
            found = stretch.stretch(place, faults, duration_s, [NO_EVALUATION, *own, *asked.settings], every)
            lines.append(Line(ours, mean_s, len(faults), every, found.steps_per_s * BATCH, found.next_step_s,
                              found.skipped * BATCH, found.again * BATCH, vars(found)))  # fmt: skip
        for peer in asked.peers:
            told = peers.training(peer, faults, duration_s, every)
            lines.append(Line(peer.name, mean_s, len(faults), every, told.samples_per_s, told.next_step_s,
                              told.lost, told.again, vars(told)))  # fmt: skip
        print(*lines[-len(OURS) - len(asked.peers) :], sep="\n", flush=True)
        title = f"A rank killed at random times on {name}, seed {asked.seed}, {asked.minutes:g} minutes each"
        values = {"checkpoint_s": saved_s, "trials": [vars(line) for line in lines]}
        table = "\n\n".join([_ettr_table(lines, saved_s), *(peer.about() for peer in asked.peers)])
        yield title, table, values


def over_limits(asked: argparse.Namespace, name: str, place: Place) -> Found:
    """Let one run continue over many time limits."""
    words = [f"train.epochs={asked.epochs}", NO_EVALUATION, *asked.settings]
    limit_s, going = place.stop_before_s() + asked.limit, _keep_going(place, 60, 4)
    found = chain(place, limit_s, runs.undisturbed(place, words), [*words, going])
    title = f"One submit over many time limits on {name}, {asked.limit:g} s each"
    titles = ["state", "attempts", "jobs", "submits", "ends", "lost", "minutes", "wrong"]
    ends = ", ".join(f"{times} {cause}" for cause, times in found.causes.items())
    row = [found.state, found.attempts, found.jobs, found.submits, ends, found.lost, f"{found.took_s / 60:.1f}",
           "; ".join(found.trouble) or "nothing: the same bits"]  # fmt: skip
    yield title, markdown(titles, [row]), asdict(found)


def in_roles(asked: argparse.Namespace, name: str, place: Place) -> Found:
    """Strike one run of several roles with faults at random steps."""
    struck, wrong = roles.measured(place, asked.faults, asked.seed)
    titles = ["fault", "faults", "recovered", "in the same attempt", "s to next step"]
    lines = []
    for kind in dict.fromkeys([*(each.kind for each in struck), "all"]):
        own = [each for each in struck if kind in (each.kind, "all")]
        times = [each.next_step_s for each in own if each.next_step_s is not None]
        lines.append([kind, len(own), len(times), sum(each.same_attempt for each in own), of(times)])
    result = f"The result: {wrong or 'the same weights, bit for bit, as an undisturbed run'}."
    title = f"{len(struck)} faults at random steps in the roles of a tiny GRPO on {name}, seed {asked.seed}"
    values = {"rows": [asdict(each) for each in struck], "wrong": wrong}
    yield title, f"{markdown(titles, lines)}\n\nMedians (worst). {result}", values


def _keep_going(place: Place, attempts: int, without_progress: int) -> str:
    spares = ", spares: 1" if place.power_off else ""
    return f"keep_going={{attempts: {attempts}, without_progress: {without_progress}{spares}}}"


@dataclass(frozen=True)
class Line:
    """One training under faults. `due` faults were to come; one whose rank was not there until the end did not.

    `speed` is in samples that count a second; `load` that of the machine at the end.
    """

    of: str
    mean_s: float
    due: int
    every: int
    speed: float
    next_step_s: Sequence[float]
    lost: int
    again: int
    values: dict[str, Any]
    load: float = field(default_factory=lambda: os.getloadavg()[0])

    def cells(self, saved_s: float) -> list[object]:
        """The cells of its row, by the speed of its undisturbed steps."""
        usual = BATCH / self.values["step_s"]
        ettr, best = self.speed / usual, None
        if self.of in OURS and self.next_step_s:
            cost_s = saved_s if self.of == "torusrun" else 0.0  # the bound of a copy in memory: one that costs nothing
            best = bound(cost_s, statistics.median(self.next_step_s), self.mean_s, BATCH / usual)
        return [self.of, f"{self.mean_s:g}", f"{self.values['faults']} of {self.due}", self.every, f"{usual:.0f}",
                share(ettr), share(best), share(ettr / best if best else None), of(self.next_step_s), self.lost,
                self.again, f"{self.load:.1f}"]  # fmt: skip


def _ettr_table(lines: Sequence[Line], saved_s: float) -> str:
    titles = ["", "s between faults", "faults", "steps between checkpoints", "samples a second, undisturbed", "ETTR",
              "Daly's bound", "of the bound", "s to next step", "samples lost", "computed twice", "load"]  # fmt: skip
    rows = [line.cells(saved_s) for line in lines]
    notes = (
        f"A checkpoint of torusrun takes {saved_s * 1000:.0f} ms of all ranks. Seconds are medians (worst). "
        f"{RANKS} ranks share {os.cpu_count()} cores, so ranks that are away leave theirs to the others, which favours "
        "a peer that continues without them."
    )
    return f"{markdown(titles, rows)}\n\n{notes}"


def _checkpoint(asked: argparse.Namespace, place: Place) -> tuple[float, float]:
    """The median time for which all ranks wait for a checkpoint, and the time of a step."""
    found = stretch.stretch(place, [], FIRST_LOOK_S, [NO_EVALUATION, *asked.settings], every=25)
    return statistics.median(found.checkpoints_s), found.step_s


def _about() -> str:
    """When and where this is measured, with the load that others make."""
    at = time.strftime("%Y-%m-%d %H:%M")
    machine = f"{os.cpu_count()} cores, {platform.platform()}, Python {platform.python_version()}"
    versions = f"torusrun {version('torusrun')}, torch {version('torch')}"
    command = f"`python -m benchmarks.faults {' '.join(sys.argv[1:])}`"
    return f"{at}, {machine}, {versions}, {command}; load {os.getloadavg()[0]:.1f} before"


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=list(MEASURE))
    parser.add_argument("--place", choices=list(WHY_NOT), default="local")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], dest="settings", help="of the runs, as in submit")
    parser.add_argument("--results", type=Path, nargs="?", const=RESULTS, help="the folder for table and values")
    parser.add_argument("--faults", type=int, default=200, help="single, roles: all faults")
    parser.add_argument("--per-run", type=int, default=10, help="single: faults of one run")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=KIND_NAMES, help="single")
    parser.add_argument("--mean", type=_numbers, default=[60.0, 15.0], help="ettr: seconds between faults")
    parser.add_argument("--minutes", type=float, default=5.0, help="ettr: of each training")
    parser.add_argument("--epochs", type=int, default=130, help="chain: of the training")
    parser.add_argument("--limit", type=float, default=15.0, help="chain: seconds of an attempt, its start among them")
    of_peers = "ettr: NAME=PYTHON,..., of torchft and nvrx: see benchmarks/under_faults/peers.py"
    parser.add_argument("--peers", type=lambda t: [*map(Peer.parse, t.split(","))], default=[], help=of_peers)
    asked = parser.parse_args()
    if asked.peers and asked.place != "local":
        parser.error("peers run on this machine alone: --place local")
    return asked


def _numbers(text: str) -> list[float]:
    return [float(word) for word in text.split(",")]


MEASURE = {"single": at_steps, "ettr": at_times, "chain": over_limits, "roles": in_roles}

if __name__ == "__main__":
    sys.exit(main())
