"""Trainings of digits that faults strike, with nobody to help them: what became of each fault."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.fault_figures import Arrival
from orchestrator.base.states import State
from orchestrator.runs.folder.run_folder import RunFolder
from orchestrator.runs.state.account import read_account
from tests.campaign import leftovers
from tests.campaign.schedule import Planned
from tests.campaign.trial import OVER, Trial
from tests.campaign.witness import Witness
from tests.e2e.places import BATCH, IMAGES, Place, assert_same_bits, ledger, metrics

APART = 150  # steps between the earliest steps of two faults of a run
REST = 90  # steps after the last fault of a run
LOST_WITHIN_S = 150.0  # the next step comes within this time, or the fault counts as a miss
FIRST_STEP_S = 120.0
ENDS_S = 300.0
LOOK_S = 0.05
NEVER = 1_000_000


@dataclass
class Struck:
    """One fault and what followed. Times are seconds from the fault; None if it did not come to that.

    `lost` are the steps that were computed again. `caught_up_s` is when the step of the fault was reached again.
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

    @property
    def recovered(self) -> bool:
        return self.next_step_s is not None

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "recovered": self.recovered}


def epochs(faults: int) -> int:
    """The epochs of a run that this many faults strike."""
    return math.ceil((faults * APART + REST) * BATCH / IMAGES)


def in_runs(planned: Sequence[Planned], per_run: int) -> list[list[Planned]]:
    """The faults of each run: in order, apart, each at its own random step."""
    runs = [planned[n : n + per_run] for n in range(0, len(planned), per_run)]
    return [[replace(one, step=one.step + n * APART) for n, one in enumerate(of)] for of in runs]


def settings(words: Sequence[str]) -> list[str]:
    return [word for setting in words for word in ("--set", setting)]


def undisturbed(place: Place, words: Sequence[str]) -> Path:
    """A run without faults, to its end."""
    run = place.submit(*settings(words))
    said = place.torusrun("watch", run.name, timeout_s=ENDS_S)
    assert said.returncode == 0, f"the undisturbed run failed: {said.stdout}{said.stderr}"
    return run


def strike_all(place: Place, faults: Sequence[Planned], whole: Path, words: Sequence[str]) -> list[Struck]:
    """Strike one run with these faults, one after the other, and compare its bits with those of the run `whole`."""
    trials = [Trial(place, replace(one, number=faults[0].number), whole) for one in faults]
    own = dict.fromkeys(text for trial in trials for text in trial.fault.settings(trial))
    run = place.submit(*settings([*own, *words]))
    rows = [Struck(one, run.name) for one in faults]
    with ExitStack() as stack, Witness(place, run) as witness:
        for trial, row in zip(trials, rows, strict=True):
            stack.push(trial.undo)
            trial.run = run
            try:
                _strike(trial, row)
            except Exception as error:  # the other faults are tried still
                row.note = f"{type(error).__name__}: {str(error).strip()[:300]}"
            if not row.recovered:
                row.note = row.note or "no step followed; resumed by hand"
                _by_hand(place, run)
        _judge(place, run, rows, whole)
    overlaps = [*witness.overlaps, *leftovers.mixed(run)]
    rows[-1].note = "; ".join(filter(None, [rows[-1].note, *overlaps]))
    leftovers.remove(place, run)
    return rows


def _strike(trial: Trial, row: Struck) -> None:
    """Strike once the step of the fault is recorded, and wait for the next attempt's first step."""
    rows = Rows(trial.run)
    rows.wait(lambda: rows.newest["step"] >= row.planned.step)
    trial.attempt = row.attempt = rows.newest["attempt"]
    struck_s = time.time()
    trial.fault.strike(trial)
    rows.wait(lambda: rows.newest["attempt"] > row.attempt)
    trial.undo.close()
    _measure(rows, row, struck_s)


def _measure(rows: Rows, row: Struck, struck_s: float) -> None:
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


class Rows:
    """The steps of a run, read as they come, so that looking costs the training little."""

    def __init__(self, run: Path) -> None:
        self.run, self.steps, self.is_done = run, list[dict[str, Any]](), False
        self._path, self._read = run / "metrics.jsonl", 0

    @property
    def newest(self) -> dict[str, Any]:
        """The newest step; step 0 of attempt 1 before the first."""
        return self.steps[-1] if self.steps else {"attempt": 1, "step": 0}

    def wait(self, true: Callable[[], bool], within_s: float = LOST_WITHIN_S) -> None:
        """Wait for something that may never come true: for a while, or until the training is done."""
        until_s = time.monotonic() + within_s
        while not true() and time.monotonic() < until_s and not self.is_done:
            time.sleep(LOOK_S)
            self._look()

    def _look(self) -> None:
        with suppress(FileNotFoundError), open(self._path, "rb") as file:
            file.seek(self._read)
            whole = file.read().rpartition(b"\n")[0]
            self._read += len(whole) + bool(whole)
            rows = [json.loads(line) for line in whole.splitlines() if line]
            self.steps += [row for row in rows if row["event"] == "step"]
            self.is_done = self.is_done or any(row["event"] == "done" for row in rows)


@dataclass(frozen=True)
class Stretch:
    """A training over `duration_s` from its first step on, with faults at random times.

    `steps` are those it was ahead at the end, `again` those that it computed twice. `next_step_s` has, for each fault,
    the time until the next step, `checkpoint_s` the median time for which all ranks waited for a checkpoint.
    """

    duration_s: float
    steps: int
    again: int
    faults: int
    attempts: int
    next_step_s: tuple[float, ...]
    checkpoints_s: tuple[float, ...]
    account: dict[str, Any]

    @property
    def steps_per_s(self) -> float:
        return self.steps / self.duration_s


def stretch(place: Place, faults: Sequence[Arrival], duration_s: float, words: Sequence[str]) -> Stretch:
    """Let faults strike a training; each kills a rank, as soon as there is one if it comes during a restart."""
    run = place.submit(*settings([f"train.epochs={NEVER}", *words]))
    try:
        first = Rows(run)
        first.wait(lambda: bool(first.steps), FIRST_STEP_S)
        assert first.steps, f"no step within {FIRST_STEP_S:g} s: {place.view(run)['reason']}"
        begun_s = first.steps[0]["t"]
        struck_s = list(_strikes(place, run, faults, begun_s, duration_s))
        time.sleep(max(begun_s + duration_s - time.time(), 0.0))
        account = read_account(RunFolder(run), State.RUNNING).as_json()
    finally:
        place.torusrun("cancel", run.name, timeout_s=60)
    rows = [row for row in metrics(run, "step") if row["t"] <= begun_s + duration_s]
    found = _stretch_of(rows, struck_s, duration_s, account)
    saved = [row["seconds"] for row in metrics(run, "checkpoint")]
    place.torusrun("watch", run.name, timeout_s=ENDS_S)
    leftovers.remove(place, run)
    return replace(found, checkpoints_s=tuple(saved))


def _stretch_of(
    rows: Sequence[dict[str, Any]], struck_s: Sequence[float], duration_s: float, account: dict[str, Any]
) -> Stretch:
    again = sum(max(before["step"] - after["step"] + 1, 0) for before, after in pairwise(rows))
    firsts = [after["t"] for before, after in pairwise(rows) if after["attempt"] > before["attempt"]]
    waits = [next((first_s - s for first_s in firsts if first_s > s), None) for s in struck_s]
    return Stretch(
        duration_s, rows[-1]["step"] - rows[0]["step"], again, len(struck_s), rows[-1]["attempt"],
        tuple(wait for wait in waits if wait is not None), (), account,
    )  # fmt: skip


def _strikes(place: Place, run: Path, faults: Sequence[Arrival], begun_s: float, duration_s: float) -> Iterator[float]:
    """Strike at each time of the faults; yields when each was struck, of time.time()."""
    struck: set[int] = set()
    for fault in faults:
        time.sleep(max(begun_s + fault.at_s - time.time(), 0.0))
        while time.time() < begun_s + duration_s:
            victim = _rank(run, fault.rank)
            if victim and victim["pid"] not in struck:
                with suppress(OSError, AssertionError):  # it ended meanwhile
                    now_s = time.time()
                    place.kill(victim["host"], victim["pid"])
                    struck.add(victim["pid"])
                    yield now_s
                    break
            time.sleep(LOOK_S)


def _rank(run: Path, rank: int) -> dict[str, Any] | None:
    """Where the rank of the newest attempt runs; None before its start."""
    attempts = [int(path.name) for path in (run / "attempts").iterdir() if path.name.isdigit()]
    try:
        return json.loads((run / f"attempts/{max(attempts)}/ranks/{rank:04d}.start.json").read_text())
    except OSError:
        return None
