"""The turns of attempts in a job, one after the other. Their sources are own_run.py and inbox.py."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import private, process
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.plan.plan import Plan

LOOK_S = 0.05
LONGER_S = 20.0  # an attempt that has not ended this long after kill_after is killed


@dataclass(frozen=True)
class Turn:
    """An attempt to begin now."""

    attempt: Attempt
    command: Sequence[str | Path]
    environment: Mapping[str, str]
    redirected: bool = False  # into the files of the attempt; else the command writes where the job does
    own_group: bool = True  # the signals of the scheduler to the job's process group do not reach it directly
    parent_death: signal.Signals = signal.SIGTERM  # the signal that it gets if this process dies


class Turns(ABC):
    """The turns of attempts in a job. Its subclasses are the sources. Times are those of time.time()."""

    def __init__(self, run: RunFolder, attempt: Attempt, plan: Plan) -> None:
        self.run, self.plan, self.first = run, plan, attempt.number
        self.scheduler = schedulers.get(plan.site.scheduler)
        self.name = self.scheduler.own_name(os.environ)
        self.busy: Turn | None = None
        self.child: subprocess.Popen[bytes] | None = None
        self.asked_s = 0.0  # when this job was asked to end; 0.0 if it was not

    @abstractmethod
    def next(self) -> Turn | State | None:
        """Whose turn is it, as no attempt runs? The state with which the job ends; None: not known yet."""

    @abstractmethod
    def ended(self, turn: Turn, code: int) -> None:
        """The attempt of this turn is over, and its process ended with this code (negative: a signal)."""

    def look(self) -> None:  # noqa: B027
        """Called often, also while an attempt runs."""

    def work(self) -> State:
        """Begin attempts until nothing is left to do in this job; how that ended."""
        while True:
            self.look()
            if self.child and self.busy and (code := self.child.poll()) is not None:
                turn, self.busy, self.child = self.busy, None, None
                self.ended(turn, code)
            if not self.child:
                turn_or_state = self.next()
                if isinstance(turn_or_state, State):
                    return turn_or_state
                if turn_or_state:
                    self.begin(turn_or_state)
            elif self.asked_s and time.time() > self.asked_s + self.plan.site.kill_after_s + LONGER_S:
                self.signal(signal.SIGKILL)
            time.sleep(LOOK_S)

    def begin(self, turn: Turn) -> None:
        """Begin an attempt. Raises SiteError."""
        with contextlib.ExitStack() as files:
            streams = (turn.attempt.stdout, turn.attempt.stderr) if turn.redirected else ()
            output = [files.enter_context(private.appended(path)) for path in streams]
            self.child = process.start(
                turn.command,
                environment=turn.environment,
                output=output[0] if output else None,
                errors=output[1] if output else None,
                own_group=turn.own_group,
                cwd=turn.attempt.folder,
                parent_death=turn.parent_death,
            )
        self.busy = turn
        if self.asked_s:  # meanwhile
            self.signal(signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the attempt that runs, if any."""
        if self.child and self.busy and self.child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if self.busy.own_group else os.kill)(self.child.pid, number)

    def ask_to_end(self) -> None:
        """End the attempt that runs, and begin no other."""
        self.asked_s = self.asked_s or time.time()
        self.signal(signal.SIGTERM)
