"""Requests to end an attempt, which reach its job as signals or in the ledger, and the job's sign of life."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from types import FrameType

from torusrun.orchestrator.base import proc
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import CancelRequested
from torusrun.orchestrator.run.folder.how_ended import How, ended
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder

PULSE_S = 5.0


class StopRequests:
    """The requests to end an attempt, from the moment this is made. `told` is the end by the first of them."""

    def __init__(self, run: RunFolder, attempt: Attempt) -> None:
        self._run, self._attempt = run, attempt
        self._ancestors = proc.ancestors()
        self._ledger_bytes = 0
        self._pulse_s = 0.0
        self.told: End | None = None
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
            signal.signal(number, self._on_signal)

    def look(self) -> End | None:
        """The attempt's end if it has to end now, else None. It is called often, and shows that the job lives.

        Some schedulers give a job's processes little or no time when they end it. So a cancellation is written to the
        ledger first. While the ledger does not grow, this costs only a stat.
        """
        if time.monotonic() >= self._pulse_s + PULSE_S:
            self._pulse_s = time.monotonic()
            with contextlib.suppress(OSError):
                os.utime(self._attempt.pulse)
        with contextlib.suppress(OSError):
            if (size := self._run.ledger.stat().st_size) != self._ledger_bytes:
                self._ledger_bytes = size
                return self.told or self.cancelled()
        return self.told

    def cancelled(self) -> End | None:
        """The end of an attempt that its user cancelled, None if it is not cancelled."""
        asked = ledger.last(ledger.events(self._run.ledger), CancelRequested, self._attempt.number)
        return ended(How.CANCELLED) if asked else None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # Where a process dies, the kernel and ours ask those below it to stop: nobody has asked for that.
        how = How.SIGNALLED if proc.ancestors() == self._ancestors else How.JOB_KILLED
        outside = ended(how, signal=signal.Signals(number).name, certain=False)
        self.told = self.told or self.cancelled() or outside
