"""Copies the progress of a program that does not write the run's metrics from the program's own files or log."""

from __future__ import annotations

import contextlib
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.program.progress import JsonLines, LineSource, PatternSource
from torusrun.orchestrator.run.program.what_runs import Program
from torusrun.training.reporting import events
from torusrun.training.reporting.metrics import Metrics

LONGEST_S = 2.0  # for one read of one source; the supervisor waits meanwhile


class Relay:
    """Reads the progress that a program reports, and appends it to the metrics of its run."""

    def __init__(
        self, program: Program, run: RunFolder, attempt: Attempt, clock: Callable[[], float] = time.time
    ) -> None:
        self._metrics = Metrics(run.metrics, attempt.number)
        self._sources: list[LineSource] = []
        self._unmatched: list[PatternSource] = []
        where = program.metrics
        if where and where.file:
            self._sources.append(JsonLines(Path(where.file), clock))
        if where and where.pattern:
            self._unmatched.append(PatternSource(attempt.rank_log(0), re.compile(where.pattern), clock))
            self._sources += self._unmatched

    def pass_on(self, *, final: bool = False) -> None:
        """Append the rows that are new since the last call; `final` if no more will come.

        A source that takes too long, as some patterns do on some lines, is not read again.
        """
        for source in list(self._sources):
            try:
                with _at_most(LONGEST_S):
                    rows = source.new_rows(final)
            except _TookTooLong:
                self._sources.remove(source)
                name = type(source).__name__
                print(f"torusrun: progress is not read any more: {name} took over {LONGEST_S:g} s", file=sys.stderr)
                continue
            for row in rows:
                waited_s = row.pop(events.CHECKPOINT_S, None)
                if waited_s is None:
                    self._metrics.write(events.STEP, **row)
                else:
                    self._metrics.write(events.CHECKPOINT, **row, seconds=waited_s)
        for source in [source for source in self._unmatched if source.complaint]:
            print(f"torusrun: {source.complaint}", file=sys.stderr)
            self._unmatched.remove(source)  # said once


class _TookTooLong(Exception):
    """Not an OSError, which readers of files expect and pass over."""


@contextlib.contextmanager
def _at_most(limit_s: float) -> Iterator[None]:
    """Raise _TookTooLong if the body takes longer. Python's regular expressions check for signals while they search."""

    def over(number: int, frame: FrameType | None) -> None:
        raise _TookTooLong

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
