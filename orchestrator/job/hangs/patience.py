"""How long an attempt may be without progress: a pure function of what its supervisor observes, and when.

Once the time between signs of progress is known, an attempt is suspected after 5 usual steps, and ended after 10 or 20
of them, but not before 10 s: the limits depend on what the ranks answer. The clock of a pause counts only the time
between looks that came as often as they should: if a look takes long, the disk or the supervisor's host stood still.

Until then a stopped process ends an attempt after 30 steps of an earlier attempt of the run, if the run had any.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from enum import Enum

from torusrun.training.reporting.heartbeat import FIRST_STEP, STEPS

UNKNOWN = ""  # nothing has been reported yet
REPORTS = "reports"  # rows of metrics alone: pauses between them have unknown causes

LEAST_S = 10.0
TIMES_USUAL = 10
TIMES_FORMER = 3  # an attempt may be slower than the attempt before it
TIMES_LONGEST = 2  # a pause that ended by itself may be followed by a pause of twice its length
FEWEST = 5  # pauses between steps before the usual pause is known
NEWEST = 100  # pauses whose mean is the usual pause
REPORTS_S = 600.0  # at least, if only rows of metrics show progress
WORK_S = 600.0  # at least, for a rank that is at work or waits for a disk
OTHER_S = 600.0  # for activities that are announced, and of which nothing is known
OTHER_LEAST_S = 60.0  # for activities other than steps, once any has ended
TIMES_OTHER = 3
QUERY_S = 30.0  # at most
UNSEEN_S = 60.0  # at least, if no rank shows work and not all stacks are known
SILENT_S = 60.0  # at most, for a host or a stopped process
AGAIN = 1.4  # times the first limit: the ranks are queried once more
CONFIRM_S = 3.0  # the latest that a sign may come after the step that it reports
GAP_S = 2.0  # the longest time between two looks that counts
NEVER = float("inf")


class Symptom(Enum):
    """What the answers of the ranks show."""

    STOPPED = "a process is stopped or gone"
    SILENT = "a wrapper does not answer"
    WAITING = "all wait for one another"
    UNSEEN = "no rank shows work, and not all stacks are known"
    WORKING = "a rank is at work, or waits for a disk"
    UNKNOWN = "no wrapper answers"


@dataclass(frozen=True)
class Sign:
    """The newest sign of progress: what the attempt does, and anything that changes with progress."""

    doing: str
    mark: object


@dataclass(frozen=True)
class Limits:
    """Seconds without progress until the ranks are queried, and until the end for each thing that they can show."""

    query_s: float
    stopped_s: float
    silent_s: float
    waiting_s: float
    unseen_s: float
    working_s: float
    host_s: float  # for a host without a sign of life, whatever its ranks show

    def of(self, shown: Symptom) -> float:
        return {
            Symptom.STOPPED: self.stopped_s,
            Symptom.SILENT: self.silent_s,
            Symptom.WAITING: self.waiting_s,
            Symptom.UNSEEN: self.unseen_s,
            Symptom.WORKING: self.working_s,
            Symptom.UNKNOWN: self.working_s,
        }[shown]

    def with_stopped(self, limit_s: float) -> Limits:
        """These, but at most `limit_s` for a stopped process."""
        return replace(self, query_s=min(self.query_s, limit_s / 2), stopped_s=min(self.stopped_s, limit_s))

    @classmethod
    def named(cls, limit_s: float) -> Limits:
        """The limit that the run names, but SILENT_S is enough for a host."""
        query_s, host_s = min(limit_s / 2, QUERY_S), min(limit_s, SILENT_S)
        return cls(query_s, limit_s, limit_s, limit_s, limit_s, limit_s, host_s)

    @classmethod
    def of_steps(cls, limit_s: float) -> Limits:
        """The limits around `limit_s`, the limit for a stopped process."""
        both_s = 2 * limit_s
        return cls(limit_s / 2, limit_s, both_s, both_s, max(both_s, UNSEEN_S), max(both_s, WORK_S), both_s)

    @classmethod
    def of_others(cls, limit_s: float) -> Limits:
        """The limits for other activities, which may take long."""
        host_s = min(limit_s, SILENT_S)
        return cls(min(limit_s / 2, QUERY_S), host_s, host_s, limit_s, limit_s, max(limit_s, WORK_S), host_s)


# Of a program that reports nothing: what it does is unknown, but not that it is stopped.
MUTE = replace(Limits.of_others(NEVER), stopped_s=OTHER_S, silent_s=OTHER_S)


class Patience:
    """The pause of an attempt, and its limits. All times are seconds of one clock, which only grows.

    `named_s` is the limit that the run names, None without. `other_s` is the limit while the usual time between reports
    is unknown, infinite for no limit; `start_s` the same before the first sign. `former_s` is the time of a step in
    an earlier attempt on the same grid, None if unknown; it holds until a later phase begins.
    """

    def __init__(
        self, now_s: float, named_s: float | None, other_s: float, start_s: float, former_s: float | None = None
    ) -> None:
        self._named_s, self._other_s, self._start_s = named_s, other_s, start_s
        self._former_s = former_s
        self._sign = Sign(UNKNOWN, None)
        self._looked_s = self._moved_s = now_s
        self._counted_s = 0.0
        self._query_at_s = self._confirmed_s = 0.0
        self._shown: Symptom | None = None
        self._pauses: deque[float] = deque(maxlen=NEWEST)
        self._sum_s = 0.0
        self._longest_s: dict[str, float] = {}

    def observe(self, now_s: float, sign: Sign, *, counts: bool = True) -> bool:
        """Note the newest sign; whether it is progress. `counts`: the time since the last look is part of a pause."""
        gap_s, self._looked_s = now_s - self._looked_s, now_s
        self._counted_s += min(gap_s, GAP_S) if counts else 0.0
        if sign == self._sign:
            return False
        self._learn(sign)
        self._sign, self._moved_s, self._shown = sign, now_s, None
        self._counted_s = self._query_at_s = 0.0
        return True

    def _learn(self, sign: Sign) -> None:
        """Keep the pause that ends with `sign`. With a first step all may take longer than before."""
        doing, pause_s = self._sign.doing, self._counted_s
        if sign.doing == FIRST_STEP != doing:
            self._former_s = self._former_s if doing in (UNKNOWN, REPORTS) else None
            self._pauses.clear()
            self._longest_s, self._sum_s = {}, 0.0
            return
        if self._shown is not Symptom.WORKING or doing not in (STEPS, REPORTS):  # else the ranks explained it
            self._longest_s[doing] = max(self._longest_s.get(doing, 0.0), pause_s)
        if doing in (STEPS, REPORTS):  # also if something else begins: steps were taken until then
            self._sum_s += pause_s - (self._pauses[0] if len(self._pauses) == NEWEST else 0.0)
            self._pauses.append(pause_s)

    @property
    def doing(self) -> str:
        """What the attempt did at its newest sign."""
        return self._sign.doing

    @property
    def idle_s(self) -> float:
        """The time without progress at the newest look. If the run names a limit, all of it counts."""
        return self._counted_s if self._named_s is None else self._looked_s - self._moved_s

    @property
    def usual_s(self) -> float | None:
        """The usual time between two signs of steps; None while unknown."""
        return max(self._sum_s, 0.0) / len(self._pauses) if len(self._pauses) >= FEWEST else None

    @property
    def limits(self) -> Limits:
        """The limits of the present pause."""
        doing = self.doing
        if self._named_s is not None:
            return Limits.named(max(self._named_s, self._start_s) if doing == UNKNOWN else self._named_s)
        if doing == UNKNOWN:
            return Limits.of_others(self._start_s) if self._start_s < NEVER else MUTE
        longest_s = self._longest_s.get(doing)
        if doing in (STEPS, REPORTS):
            return self._of_steps(longest_s or 0.0)
        known_s = None if longest_s is None or doing == FIRST_STEP else max(OTHER_LEAST_S, TIMES_OTHER * longest_s)
        return Limits.of_others(OTHER_S if known_s is None else known_s)

    def _of_steps(self, longest_s: float) -> Limits:
        if self.usual_s is None:
            return self._of_former(longest_s)
        limit_s = max(LEAST_S, TIMES_USUAL * self.usual_s, TIMES_LONGEST * longest_s)
        return Limits.of_steps(limit_s) if self.doing == STEPS else Limits.of_others(max(limit_s, REPORTS_S))

    def _of_former(self, longest_s: float) -> Limits:
        """The limits between steps while their usual time is unknown."""
        limits = Limits.of_others(OTHER_S if self.doing == STEPS else self._other_s)
        if self._former_s is None or self.doing != STEPS:
            return limits
        limit_s = max(LEAST_S, TIMES_USUAL * TIMES_FORMER * self._former_s, TIMES_LONGEST * longest_s)
        return limits.with_stopped(limit_s)

    def asks(self) -> bool:
        """Whether the ranks have to be queried now: at the first limit, soon again, and whenever the pause doubles."""
        limits = self.limits
        first_s = min(limits.waiting_s, OTHER_S) if self.doing == UNKNOWN else limits.query_s  # programs start
        if self.idle_s < max(first_s, self._query_at_s):
            return False
        self._query_at_s = AGAIN * first_s if self._query_at_s < first_s else 2 * self._query_at_s
        return True

    def answered(self, shown: Symptom) -> None:
        """Note what the ranks' answers show."""
        self._shown, self._confirmed_s = shown, self.idle_s + CONFIRM_S

    @property
    def over(self) -> Symptom | None:
        """Why the attempt has to end; None if it has not.

        Signs come later than answers. So an answer counts only if no sign has come CONFIRM_S after it.
        """
        shown = self._shown
        if shown is None or self.idle_s < max(self._confirmed_s, self.limits.of(shown)):
            return None
        return shown
