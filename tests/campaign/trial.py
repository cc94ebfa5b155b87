"""One fault, from the run's submission to the comparison of its bits."""

from __future__ import annotations

import json
import re
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.campaign import leftovers
from tests.campaign.faults import KINDS, Expected, Fault
from tests.campaign.faults.fault import SUSPECTED
from tests.campaign.schedule import Planned
from tests.campaign.witness import Witness
from tests.e2e.places import HELD_AFTER, LAST_STEP, Place, Said, assert_same_bits, metrics, until
from tests.e2e.processes import SUPERVISOR, Process

TOLD_WITHIN_S = 120.0
SETTLED_WITHIN_S = 5.0  # a wrong end may be only the first answer
RESUMED_WITHIN_S = 180.0
SETTLED_AT_LAST_S = 180.0  # a Slurm with a server that stood still learns of an end up to two minutes later
AT_WORK_S = 30.0  # for which the ranks may still run after the end of an attempt
OVER = ("COMPLETED", "FAILED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "OOM", "CANCELLED", "LOST")


@dataclass
class Row:
    """The result of one fault: `wrong` says why the reported cause is wrong, `trouble` lists errors of the trial."""

    planned: Planned
    run: str = ""
    told_s: float | None = None
    suspected_s: float | None = None
    state: str = ""
    reason: str = ""
    wrong: str = "it did not come to that"
    recovered: bool = False
    identical: bool = False
    leftovers: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def cause_right(self) -> bool:
        return not self.wrong

    @property
    def good(self) -> bool:
        return self.cause_right and self.recovered and self.identical and not self.leftovers and not self.trouble


class Trial:
    """The run that a fault strikes, and the actions that undo the fault."""

    def __init__(self, place: Place, planned: Planned, undisturbed: Path) -> None:
        self.place, self.planned, self.undisturbed = place, planned, undisturbed
        self.fault: Fault = KINDS[planned.kind]
        self.row = Row(planned)
        self.undo = ExitStack()
        self.run = Path()
        self.attempt = 1  # the one that is struck
        self.struck_s = 0.0  # of time.monotonic(); a fault with long preparations sets it anew

    @property
    def reason(self) -> str:
        return self.row.reason

    def started(self, rank: int) -> dict[str, Any]:
        """The record of a rank's training: its host, its pid there, its local rank."""
        return json.loads((self.run / f"attempts/{self.attempt}/ranks/{rank:04d}.start.json").read_text())

    def who(self, rank: int) -> str:
        """A pattern of the name of a rank in a reason."""
        started = self.started(rank)
        return re.escape(f"rank {rank} ({started['host']}, local rank {started['local_rank']})")

    def supervisor(self) -> Process:
        """The supervisor of the attempt that is struck."""
        folder = str(self.run / f"attempts/{self.attempt}")
        return next(p for p in self.place.processes(self.run) if p.module == SUPERVISOR and folder in p.arguments)

    def wrapper(self, rank: int) -> Process:
        started = self.started(rank)
        here = {p.pid: p for p in self.place.processes(self.run) if p.host == started["host"]}
        return here[here[started["pid"]].parent]

    def host(self, *, first: bool) -> str:
        """The supervisor's host if `first`, else another one."""
        home = self.supervisor().host
        return home if first else next(h for r in range(4) if (h := self.started(r)["host"]) != home)


def carry_out(place: Place, planned: Planned, undisturbed: Path) -> Row:
    """Try one fault; all errors are in the row."""
    trial = Trial(place, planned, undisturbed)
    row = trial.row
    try:
        submit = place.submit_held if planned.step <= HELD_AFTER else place.submit
        trial.run = submit(*(word for setting in trial.fault.settings(trial) for word in ("--set", setting)))
        row.run = trial.run.name
        with Witness(place, trial.run) as witness:
            _struck_and_told(trial)
            trial.undo.close()
            _recover(trial)
            _compare(trial)
        row.leftovers += [*witness.overlaps, *leftovers.after(place, trial.run)]
    except Exception as error:  # the campaign continues
        row.trouble.append(f"{type(error).__name__}: {str(error).strip()[:500]}")
    finally:
        _clean_up(trial)
    return row


def _struck_and_told(trial: Trial) -> None:
    step = trial.planned.step
    newest = lambda: max((row["step"] for row in metrics(trial.run, "step")), default=0)  # noqa: E731
    until(lambda: newest() >= step or _end_is_there(trial), f"step {step}")
    trial.struck_s = time.monotonic()
    expected = trial.fault.strike(trial)
    trial.place.release(trial.run)
    _watch(trial, expected)


def _end_is_there(trial: Trial) -> bool:
    return (trial.run / "attempts/1/end.json").exists()


def _watch(trial: Trial, expected: Expected) -> None:
    """Query the state until it is final and right, final and wrong for a while, or the time is up."""
    row, struck_s, over_s = trial.row, trial.struck_s, None
    while True:
        view = trial.place.view(trial.run)
        now_s = time.monotonic()
        row.state, row.reason = view["state"], view["reason"]
        over = row.state in OVER
        if SUSPECTED in row.reason and not over and row.suspected_s is None:
            row.suspected_s = now_s - struck_s
        if over and over_s is None:
            over_s = now_s
        row.wrong = expected.wrong(view) if over or expected.suspicion else f"{row.state} is no end"
        if not row.wrong or (over_s and now_s > over_s + SETTLED_WITHIN_S):
            row.told_s = (over_s or now_s) - struck_s
            break
        if now_s > struck_s + TOLD_WITHIN_S:
            row.wrong = f"not told in {TOLD_WITHIN_S:g} s"
            break
        time.sleep(0.2)
    row.wrong = row.wrong or trial.fault.missing(trial)
    if row.wrong:
        row.evidence = leftovers.evidence(trial.run)


def _recover(trial: Trial) -> None:
    """Resume to the end, unless the run completes by itself."""
    if _settled(trial) != "COMPLETED":
        said = _resume(trial)
        if said.returncode:
            trial.row.trouble.append(f"resume ended with {said.returncode}: {(said.stderr or said.stdout).strip()}")
            return
    attempts = {row["attempt"]: row["resumed_from"] for row in metrics(trial.run, "start")}
    from_the_start = [number for number, origin in attempts.items() if number > 1 and origin is None]
    if from_the_start:
        trial.row.trouble.append(f"attempt {from_the_start[0]} began anew and used no checkpoint")
    done = metrics(trial.run, "done")
    trial.row.recovered = bool(done) and done[-1]["step"] == LAST_STEP and not from_the_start


def _settled(trial: Trial) -> str:
    """The final state, which a late report of the end may still give; it does not wait after a suspicion."""
    until_s = time.monotonic() + SETTLED_AT_LAST_S
    while (state := trial.place.view(trial.run)["state"]) not in OVER and not trial.fault.resume(trial):
        if time.monotonic() > until_s:
            break
        time.sleep(1)
    return state


def _resume(trial: Trial) -> Said:
    """Resume as a user does: after a report that processes still run, try again in a moment."""
    words = ["resume", trial.run.name, "--wait", *trial.fault.resume(trial)]
    until_s = time.monotonic() + AT_WORK_S
    while True:
        said = trial.place.torusrun(*words, timeout_s=RESUMED_WITHIN_S)
        if "still at work; ask again" not in said.stderr or time.monotonic() > until_s:
            return said
        time.sleep(1)


def _compare(trial: Trial) -> None:
    if not trial.row.recovered:
        return
    try:
        assert_same_bits(trial.run, trial.undisturbed)
        trial.row.identical = True
    except (AssertionError, OSError, ValueError) as error:
        trial.row.trouble.append(str(error))


def _clean_up(trial: Trial) -> None:
    """End all that is left of the run, so that the next fault finds an empty place."""
    try:
        trial.undo.close()
    except Exception as error:
        trial.row.trouble.append(f"taking the fault back: {error}")
    if trial.run == Path():
        return
    with suppress(Exception):
        if not trial.row.good and not trial.row.evidence:
            trial.row.evidence = leftovers.evidence(trial.run)
    try:
        leftovers.remove(trial.place, trial.run)
    except Exception as error:
        trial.row.trouble.append(f"cleaning up: {error}")
