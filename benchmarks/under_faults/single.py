"""Faults of many kinds at random steps of runs: what became of each."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.under_faults.runs import ENDS_S, Rows, settings
from tests.campaign import leftovers
from tests.campaign.faults import hosts
from tests.campaign.schedule import Planned
from tests.campaign.trial import OVER, Trial
from tests.campaign.witness import Witness
from tests.e2e.places import BATCH, IMAGES, Place, assert_same_bits, ledger, metrics

HOST_KINDS = {fault.kind for fault in hosts.FAULTS}
APART = 150  # steps between the earliest steps of two faults of a run
REST = 3000  # steps after the last fault of a run: it takes seconds to strike, and more until a host is back


@dataclass
class Struck:
    """One fault and what followed. Times are seconds from the fault; None if it did not come to that.

    `load` is that of the machine once the next step was there. `lost` are the steps that were computed again.
    `caught_up_s` is when the step of the fault was reached again.
    """

    planned: Planned
    run: str
    attempt: int = 1
    step: int = 0
    cause: str = ""
    reason: str = ""
    lost: int | None = None
    detected_s: float | None = None
    next_step_s: float | None = None
    caught_up_s: float | None = None
    identical: bool = False
    note: str = ""
    load: float = field(default_factory=lambda: os.getloadavg()[0])

    @property
    def recovered(self) -> bool:
        return self.next_step_s is not None

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "recovered": self.recovered}


def epochs(faults: int) -> int:
    """The epochs of a run that this many faults strike."""
    return math.ceil((faults * APART + REST) * BATCH / IMAGES)


def in_runs(planned: Sequence[Planned], per_run: int) -> list[list[Planned]]:
    """The faults of each run: apart, each at its own random step. Others come between two that take a host away."""
    runs = [_spread(planned[n : n + per_run]) for n in range(0, len(planned), per_run)]
    return [[replace(one, step=one.step + n * APART) for n, one in enumerate(of)] for of in runs]


def _spread(planned: Sequence[Planned]) -> list[Planned]:
    at_hosts = [one for one in planned if one.kind in HOST_KINDS]
    found = [one for one in planned if one.kind not in HOST_KINDS]
    apart = math.ceil(len(planned) / max(len(at_hosts), 1))
    for n, one in enumerate(at_hosts):
        found.insert(n * apart, one)
    return found


def strike_all(place: Place, faults: Sequence[Planned], whole: Path, words: Sequence[str]) -> list[Struck]:
    """Strike one run with these faults, one after the other, and compare its bits with those of the run `whole`."""
    trials = [Trial(place, replace(one, number=faults[0].number), whole) for one in faults]
    own = list(dict.fromkeys(text for trial in trials for text in trial.fault.settings(trial)))
    own = [text for text in own if not text.startswith("hang_timeout=")]  # hangs are found by usual steps
    run = place.submit(*settings([*own, *words]))
    rows = [Struck(one, run.name) for one in faults]
    with ExitStack() as stack, Witness(place, run) as witness:
        stack.callback(leftovers.remove, place, run)
        back = stack.enter_context(ThreadPoolExecutor(1))
        undone: list[Future[None]] = []  # a host may take longer to come back than the next steps
        for trial, row in zip(trials, rows, strict=True):
            stack.push(trial.undo)
            trial.run = run
            try:
                while row.planned.kind in HOST_KINDS and undone:
                    undone.pop().result()
                _strike(trial, row)
            except Exception as error:  # the other faults are tried still
                row.note = f"{type(error).__name__}: {str(error).strip()[:300]}"
            undone.append(back.submit(trial.undo.close))
            if not row.recovered:
                row.note = row.note or "no step followed; resumed by hand"
                _by_hand(place, run)
        _judge(place, run, rows, whole)
    overlaps = [*witness.overlaps, *leftovers.mixed(run)]
    rows[-1].note = "; ".join(filter(None, [rows[-1].note, *overlaps]))
    return rows


def _strike(trial: Trial, row: Struck) -> None:
    """Strike once the step of the fault is recorded, and wait for the next attempt's first step."""
    rows = Rows(trial.run)
    rows.wait(lambda: rows.newest["step"] >= row.planned.step)
    assert not rows.is_done, "the run was done before this fault"
    trial.attempt = row.attempt = rows.newest["attempt"]
    struck_s = time.time()
    trial.fault.strike(trial)
    rows.wait(lambda: rows.newest["attempt"] > row.attempt)
    _measure(rows, row, struck_s)


def _measure(rows: Rows, row: Struck, struck_s: float) -> None:
    row.load = os.getloadavg()[0]
    row.step = [step for step in rows.steps if step["attempt"] == row.attempt][-1]["step"]
    following = next((step for step in rows.steps if step["attempt"] > row.attempt), None)
    ends = [event for event in ledger(rows.run, "ended") if event["attempt"] == row.attempt]
    if ends:
        row.cause, row.reason = ends[0].get("cause", "unknown"), ends[0]["reason"]
        row.detected_s = ends[0]["t"] - struck_s
    if following:
        row.next_step_s = following["t"] - struck_s
        row.lost = row.step - (following["step"] - 1)


def _judge(place: Place, run: Path, rows: Sequence[Struck], whole: Path) -> None:
    """Wait for the end of the run, then fill in what only the whole run shows."""
    until_s = time.monotonic() + ENDS_S
    while (view := place.view(run))["state"] not in OVER and time.monotonic() < until_s:
        time.sleep(0.5)
    for row, steps in zip(rows, _caught_up(run, rows), strict=True):
        row.caught_up_s = steps
    try:
        assert view["state"] == "COMPLETED", f"the run is {view['state']}: {view['reason']}"
        assert_same_bits(run, whole)
        for row in rows:
            row.identical = True
    except (AssertionError, OSError, ValueError) as error:
        rows[-1].note = "; ".join(filter(None, [rows[-1].note, str(error)[:300]]))


def _caught_up(run: Path, rows: Sequence[Struck]) -> Iterator[float | None]:
    """For each fault the time until its step was reached again."""
    steps = metrics(run, "step")
    for row in rows:
        later = [step for step in steps if step["attempt"] > row.attempt]
        again = next((step for step in later if step["step"] >= row.step), None)
        yield again["t"] - later[0]["t"] + row.next_step_s if again and row.next_step_s is not None else None


def _by_hand(place: Place, run: Path) -> None:
    """Resume a run that did not recover, so that the other faults can strike it."""
    with suppress(Exception):
        place.torusrun("resume", run.name, "--force", timeout_s=60)
