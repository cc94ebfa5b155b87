"""Trainings as a supervisor sees them, by a clock of their own: recorded and synthetic step times, pauses and hangs."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from pathlib import Path
from random import Random

from torusrun.orchestrator.job.hangs.patience import OTHER_S, Patience, Sign, Symptom
from torusrun.training.reporting.heartbeat import CHECKPOINT, EVALUATION, FIRST_STEP, STEPS

RECORDED = Path(__file__).with_name("recorded") / "step_times" / "digits.json"
LOOK_S, LATEST_S = 1.0, 1.25  # between looks: a poll may come late
FILE_S = 1.0  # between writes of the file with the newest activity


class Pause(Enum):
    """Why an activity takes longer."""

    NONE = 0
    ALL_DISKS = 1  # the supervisor cannot write either
    DATA_DISK = 2  # only a rank waits for it
    NETWORK = 3  # all ranks wait for one another


@dataclass(frozen=True)
class Activity:
    """One step, evaluation or checkpoint of `seconds`, of which the last `paused_s` are a pause."""

    doing: str
    seconds: float
    pause: Pause = Pause.NONE
    paused_s: float = 0.0


def recorded() -> list[Activity]:
    """The activities of a real training."""
    kept = json.loads(RECORDED.read_text())
    return [Activity(kept["doing"][what], time_us / 1e6) for what, time_us in kept["times_us"]]


# The longest pauses, with the step, that must never end a run. A longer one of a network is no different from a hang.
LONGEST_S = {Pause.ALL_DISKS: 3000.0, Pause.DATA_DISK: 590.0, Pause.NETWORK: 17.0}


def with_pauses(activities: Sequence[Activity], chance: Random, every: int) -> Iterator[Activity]:
    """The activities, one of `every` with a pause of a random kind and length."""
    for one in activities:
        if one.doing == STEPS and chance.random() < 1 / every:
            pause = chance.choice(list(LONGEST_S))
            paused_s = math.exp(chance.uniform(0.0, math.log(LONGEST_S[pause])))
            paused_s = max(min(paused_s, LONGEST_S[pause] - one.seconds), 0.0)
            one = Activity(one.doing, one.seconds + paused_s, pause, paused_s)
        yield one


def synthetic(chance: Random, steps: int, usual_s: float) -> Iterator[Activity]:
    """Steps with a heavy tail up to nine usual ones, evaluations, checkpoints, and a slower phase after the half."""
    for step in range(steps):
        usual_s *= 8 if step == steps // 2 else 1
        tail = min(chance.paretovariate(1.5) * 0.7, 9.0)
        first = step in (0, 1, steps // 2)
        yield Activity(FIRST_STEP, usual_s) if first else Activity(STEPS, usual_s * tail)
        if step % 1000 == 999:
            yield Activity(EVALUATION, min(90.0 * usual_s, 400.0) * chance.uniform(0.5, 1.4))
        if step % 200 == 199:
            yield Activity(CHECKPOINT, min(usual_s, 40.0) * chance.uniform(0.1, 10))


class Seen:
    """Activities as the supervisor sees them: by a file that is a second late, and looks that a slow disk delays.

    The ranks answer `shown`, or what their activity shows.
    """

    def __init__(self, activities: Sequence[Activity], chance: Random, shown: Symptom | None = None) -> None:
        self._activities, self._chance, self.shown = activities, chance, shown
        self.queries_s: list[float] = []
        self._ends_s = list(accumulate(one.seconds for one in activities))
        self.over_s = self._ends_s[-1]

    def looks(self, patience: Patience, from_s: float = 0.0) -> Iterator[float]:
        """The time of every look, after `patience` has observed it and has got the answers of the ranks."""
        at_s = from_s
        while at_s < self.over_s:
            number = bisect_right(self._ends_s, at_s)
            now = self._activities[number]
            paused_at_s = self._ends_s[number] - now.paused_s
            if now.pause is Pause.ALL_DISKS and at_s >= paused_at_s:
                if patience.idle_s > 2.0:
                    at_s = self._ends_s[number]  # the look itself takes so long
                newest = bisect_right(self._ends_s, math.floor(paused_at_s))  # the file stays as it was
            else:
                newest = bisect_right(self._ends_s, math.floor(at_s / FILE_S) * FILE_S)
            doing = self._activities[min(newest, number)].doing
            patience.observe(at_s, Sign(doing, (doing, newest)))
            works = now.pause is Pause.DATA_DISK or now.doing == CHECKPOINT
            if patience.asks():
                patience.answered(self.shown or (Symptom.WORKING if works else Symptom.WAITING))
                self.queries_s.append(at_s)
            yield at_s
            at_s += self._chance.uniform(LOOK_S, LATEST_S)


def false_end(
    activities: Sequence[Activity], chance: Random, former_s: float | None = None, shown: Symptom | None = None
) -> str:
    """When and in what an attempt without a hang would be ended, after one with steps of `former_s`; '' if it is not.

    Its ranks answer `shown`, or what their activity shows.
    """
    patience = Patience(0.0, None, OTHER_S, OTHER_S, former_s)
    for at_s in Seen(activities, chance, shown).looks(patience):
        if patience.over:
            return f"at {at_s:.0f} s in {patience.doing}: {patience.idle_s:.0f} s, {patience.limits}, {patience.over}"
    return ""
