"""What a program's own files and logs report: its progress, copied to the run's metrics, and NCCL's network.

NCCL logs its network when the first ranks meet, with NCCL_DEBUG=INFO, which the wrapper sets if the site has adapters.
"""

from __future__ import annotations

import contextlib
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import NetworkChosen
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.program.progress import JsonLines, LineSource, PatternSource
from torusrun.orchestrator.run.program.what_runs import MetricsSource, Program
from torusrun.training.reporting import events
from torusrun.training.reporting.metrics import Metrics

LONGEST_S = 2.0  # for one read of one source; the supervisor waits meanwhile
HEAD_BYTES = 256 * 1024  # more of the log is not read
PLACES = ("t", "step")  # of a row
CHOSEN = re.compile(r"NCCL INFO Using network ([^\r\n]{1,100})")  # since NCCL 2.5


class Relay:
    """Reads the progress that a program and its services report, and appends it to the metrics of its run.

    `services` has the name of each, where its progress is read, and the log of its first rank.
    """

    def __init__(
        self,
        program: Program,
        run: RunFolder,
        attempt: Attempt,
        clock: Callable[[], float] = time.time,
        services: Iterable[tuple[str, MetricsSource, Path]] = (),
    ) -> None:
        self._metrics = Metrics(run.metrics, attempt.number)
        self._sources: list[tuple[str, LineSource]] = []  # with the name of the service
        self._unmatched: list[PatternSource] = []
        self._clock = clock
        self.of_services_bytes = 0  # in the metrics
        if program.metrics:
            self._add("", program.metrics, attempt.rank_log(0))
        for service in services:
            self._add(*service)

    def _add(self, name: str, where: MetricsSource, log: Path) -> None:
        if where.file:
            self._sources.append((name, JsonLines(Path(where.file), self._clock)))
        if where.pattern:
            self._unmatched.append(PatternSource(log, re.compile(where.pattern), self._clock))
            self._sources.append((name, self._unmatched[-1]))

    def pass_on(self, *, final: bool = False) -> None:
        """Append the rows that are new since the last call; `final` if no more will come.

        A source that takes too long, as some patterns do on some lines, is not read again.
        """
        for service, source in list(self._sources):
            try:
                with _at_most(LONGEST_S):
                    rows = source.new_rows(final)
            except _TookTooLong:
                self._sources.remove((service, source))
                name = type(source).__name__
                print(f"torusrun: progress is not read any more: {name} took over {LONGEST_S:g} s", file=sys.stderr)
                continue
            for row in rows:
                if service:
                    self._of_service(service, row)
                    continue
                waited_s = row.pop(events.CHECKPOINT_S, None)
                if waited_s is None:
                    self._metrics.write(events.STEP, **row)
                else:
                    self._metrics.write(events.CHECKPOINT, **row, seconds=waited_s)
        for source in [source for source in self._unmatched if source.complaint]:
            print(f"torusrun: {source.complaint}", file=sys.stderr)
            self._unmatched.remove(source)  # the complaint is printed once

    def _of_service(self, service: str, row: dict[str, Any]) -> None:
        """Append a row of a service: its numbers have the service's name before theirs."""
        named = {f"{service}/{name}": value for name, value in row.items() if name not in PLACES}
        if named:
            placed = {name: row[name] for name in PLACES if name in row}
            self.of_services_bytes += self._metrics.write(events.ROLE, **placed, role=service, **named)


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


def chosen(text: str) -> str | None:
    """The network that NCCL chose, as a log shows: IB, Socket or a plug-in's name; None if the log has none yet."""
    line = CHOSEN.search(text)
    return line[1].strip() if line else None


class NetworkWatch:
    """Reads the head of rank 0's log as it grows, until it names NCCL's network or the head is complete."""

    def __init__(self, run: RunFolder, attempt: Attempt, *, wanted: bool) -> None:
        self._run, self._attempt = run, attempt
        self._head = b""
        self._over = not wanted

    def look(self) -> None:
        """Read the text that is new since the last call; record the network in the ledger once it is known."""
        if self._over:
            return
        try:
            with open(private.open_regular(self._attempt.rank_log(0)), "rb") as log:
                log.seek(len(self._head))
                new = log.read(HEAD_BYTES - len(self._head))
        except OSError:
            return
        if not new:
            return
        self._head += new
        # The last line may be incomplete.
        if network := chosen(self._head.rpartition(b"\n")[0].decode(errors="replace")):
            with contextlib.suppress(SiteError):  # a full disk
                ledger.append(self._run.ledger, NetworkChosen(self._attempt.number, network))
        self._over = network is not None or len(self._head) >= HEAD_BYTES
