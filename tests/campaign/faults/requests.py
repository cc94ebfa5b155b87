"""Requests of users at the wrong moment: an end, a shorter time, a second attempt."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING

from tests.campaign.faults.fault import Expected, Fault
from tests.e2e.places import ledger, seconds_to

if TYPE_CHECKING:
    from tests.campaign.trial import Trial

# The commands that query schedulers or end jobs: only a submission works.
COMMANDS = ("squeue", "sacct", "scontrol", "scancel", "qstat", "qacct", "qhost", "qdel", "cat", "kill")
# The job inherits the PATH of its client, and must be able to query.
BLIND = """#!/bin/sh
case "$(tr '\\0' ' ' < /proc/$PPID/cmdline)" in
  *'orchestrator resume '*) echo 'the scheduler does not answer' >&2; exit 1;;
esac
PATH="${{PATH#*/blind:}}" exec {command} "$@"
"""


class Cancel(Fault):
    """`torusrun cancel`."""

    def __init__(self, kind: str, steps: tuple[float, float]) -> None:
        self.kind, self.steps = kind, steps

    def strike(self, trial: Trial) -> Expected:
        said = trial.place.torusrun("cancel", trial.run.name, timeout_s=60)
        assert said.returncode == 0 or "is over already" in said.stderr, said.stderr
        return Expected(("CANCELLED",), ("cancelled by its user",))


class OutsideCancel(Fault):
    """The job is ended by hand, without torusrun."""

    kind = "outside-cancel"

    def strike(self, trial: Trial) -> Expected:
        job = ledger(trial.run, "submitted")[-1]["job"]
        said = trial.place.run(trial.place.end_by_hand(job), timeout_s=60)
        assert said.returncode == 0, said.stderr
        return Expected(("CANCELLED",), ("outside|cancel|deleted|qdel",))


class TimeLimit(Fault):
    """A time limit at the moment of the step in an undisturbed run."""

    kind = "time-limit"

    def settings(self, trial: Trial) -> list[str]:
        self.works_s = round(seconds_to(trial.undisturbed, trial.planned.step))
        self.limit_s = round(trial.place.stop_before_s() + self.works_s)
        return [f"time={self.limit_s}s"]

    def strike(self, trial: Trial) -> Expected:
        begun_s = ledger(trial.run, "started")[-1]["t"]
        trial.struck_s = time.monotonic() + begun_s + self.works_s - time.time()
        return Expected(("TIMEOUT",), (f"time limit of {self.limit_s} s",))

    def resume(self, trial: Trial) -> list[str]:
        return ["--time", "10m"]


class ResumeRaces(Fault):
    """A user with a client that cannot query the scheduler resumes a run by force while its first attempt is alive.

    The hold of the run keeps it alive until a slow client has resumed it.
    """

    kind = "resume-races"
    steps = (0.0, 0.2)

    def settings(self, trial: Trial) -> list[str]:
        """Prepare the client."""
        trial.place.run(["mkdir", "-p", "blind"])
        for command in COMMANDS:
            trial.place.put(f"blind/{command}", BLIND.format(command=command))
        trial.place.run(["sh", "-c", "chmod 755 blind/*"])
        return []

    def strike(self, trial: Trial) -> Expected:
        place = trial.place
        blind = f"PATH={shlex.quote(str(place.folder))}/blind:$PATH"
        words = ["sh", "-c", f'{blind} exec "$@"', "sh", *self._resume(place, trial.run.name)]
        said = place.run(words, timeout_s=60)
        assert said.returncode == 0, f"resume --force: {said.stderr.strip()}"
        return Expected(("COMPLETED",))

    @staticmethod
    def _resume(place, run: str) -> list[str]:
        return ["python", "-m", "torusrun", "resume", run, "--force"]


FAULTS = [Cancel("cancel", (0.0, 0.6)), Cancel("cancel-late", (0.985, 0.999)), OutsideCancel(), TimeLimit(),
          ResumeRaces()]  # fmt: skip
