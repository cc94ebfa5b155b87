"""Trainings over a stretch of time, in which ranks are killed at random times."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.under_faults.figures import Arrival, undisturbed_step_s
from benchmarks.under_faults.runs import ENDS_S, LOOK_S, NEVER, Rows, settings
from tests.campaign import leftovers
from tests.e2e.places import Place, metrics
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.account import read_account

FIRST_STEP_S = 120.0


@dataclass(frozen=True)
class Stretch:
    """A training over `duration_s` from its first step on, with faults at random times.

    `steps` are those that it was ahead at the end, `again` those that it computed twice, `skipped` those that it never
    computed. `next_step_s` has the time from each fault to the next step, `checkpoints_s` how long all ranks waited for
    each checkpoint. `step_s` is the time of an undisturbed step.
    """

    duration_s: float
    steps: int
    again: int
    skipped: int
    faults: int
    attempts: int
    next_step_s: tuple[float, ...]
    checkpoints_s: tuple[float, ...]
    step_s: float
    account: dict[str, Any]

    @property
    def steps_per_s(self) -> float:
        return self.steps / self.duration_s


def stretch(place: Place, faults: Sequence[Arrival], duration_s: float, words: Sequence[str], every: int) -> Stretch:
    """Let faults strike a training; each kills a rank, as soon as there is one if it comes during a restart."""
    run = place.submit(*settings([f"train.epochs={NEVER}", f"train.checkpoint_every_steps={every}", *words]))
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
    found = stretch_of(rows, struck_s, duration_s, account, every)
    saved = [row["seconds"] for row in metrics(run, "checkpoint")]
    place.torusrun("watch", run.name, timeout_s=ENDS_S)
    leftovers.remove(place, run)
    return replace(found, checkpoints_s=tuple(saved))


def stretch_of(
    rows: Sequence[dict[str, Any]],
    struck_s: Sequence[float],
    duration_s: float,
    account: dict[str, Any],
    every: int,
) -> Stretch:
    """What the steps of rank 0 say: it writes a row for each."""
    again = sum(max(before["step"] - after["step"] + 1, 0) for before, after in pairwise(rows))
    skipped = sum(max(after["step"] - before["step"] - 1, 0) for before, after in pairwise(rows))
    firsts = [after["t"] for before, after in pairwise(rows) if after["attempt"] > before["attempt"]]
    waits = [next((first_s - s for first_s in firsts if first_s > s), None) for s in struck_s]
    step_s = undisturbed_step_s([(row["t"], row["step"]) for row in rows], every)
    return Stretch(
        duration_s, rows[-1]["step"] - rows[0]["step"], again, skipped, len(struck_s), rows[-1]["attempt"],
        tuple(wait for wait in waits if wait is not None), (), step_s, account,
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
