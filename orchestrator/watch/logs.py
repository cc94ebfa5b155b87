"""What an attempt wrote: one rank's output, or everything as one stream of lines with their origin."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import SiteError, UserError
from orchestrator.runs import remains
from orchestrator.runs.events import Ended
from orchestrator.runs.folder import Attempt, RunFolder
from orchestrator.runs.ledger import last
from orchestrator.runs.records import End
from orchestrator.states import State, Status
from orchestrator.watch.follow import follow
from orchestrator.watch.plain import plain
from orchestrator.watch.poll import standing
from orchestrator.watch.source import FollowedFile
from orchestrator.watch.tail import tail
from orchestrator.watch.view import Record, read_record

RANK_LOG = re.compile(r"rank-(\d{4,8})\.log")
TAIL_LINES = 20


@dataclass(frozen=True)
class Logs:
    """The logs of one attempt of a run. Lines of a run that is not one's own are made safe to print."""

    record: Record
    attempt: Attempt

    @property
    def run(self) -> RunFolder:
        return self.record.folder

    @property
    def ranks(self) -> int:
        return self.record.plan.ranks if self.record.plan else 1

    def lines(
        self, rank: int | None, *, until_over: bool = False, pattern: re.Pattern[str] | None = None
    ) -> Iterator[str]:
        """The lines of a rank, or (None) of the job and all ranks, by file; of these, those that `pattern` matches.

        With `until_over` then those that come, until the run is over. Raises UserError for a rank that there is not.
        """
        if rank is not None and (rank < 0 or (self.record.plan and rank >= self.ranks)):
            raise UserError(f"{self.run.run_id} has no rank {rank}: its ranks are 0 to {self.ranks - 1}")
        return map(self.safe, self._lines(rank, until_over, pattern))

    def _lines(self, rank: int | None, until_over: bool, pattern: re.Pattern[str] | None) -> Iterator[str]:
        sources: dict[Path, FollowedFile] = {}

        def new(*, whole: bool) -> Iterator[str]:
            for origin, path in self.files() if rank is None else [("", self.attempt.rank_log(rank))]:
                yield from sources.setdefault(path, FollowedFile(origin, path, pattern)).new(whole=whole)

        if until_over:
            for _ in follow(self.run):
                yield from new(whole=True)
        yield from new(whole=False)

    def files(self) -> list[tuple[str, Path]]:
        """The files of the job and of all ranks, as far as there are any, with the origin of their lines."""
        try:
            names = os.listdir(self.attempt.logs)
        except OSError:
            names = []
        width = len(str(self.ranks - 1))
        logs = sorted(int(found[1]) for name in names if (found := RANK_LOG.fullmatch(name)))
        return [("job | ", self.attempt.stdout), ("job | ", self.attempt.stderr)] + [
            (f"{number:{width}} | ", self.attempt.rank_log(number)) for number in logs
        ]

    def safe(self, line: str) -> str:
        return line if self.record.mine else plain(line)

    def wrote(self, rank: int) -> bool:
        """Whether there is anything in a rank's log."""
        try:
            return self.attempt.rank_log(rank).lstat().st_size > 0
        except OSError:
            return False

    def silence(self, rank: int) -> tuple[str, list[str]]:
        """Why a rank's log is empty, in one line, and the end of what its job wrote where that explains a failure."""
        status = self.status()
        if status.state is State.PENDING:
            return f"rank {rank} has not begun: {self._words(status)}", []
        if status.state not in (State.RUNNING, State.COMPLETED):
            words, lines = self.failure()
            return f"rank {rank} wrote nothing; {words}", lines
        wrote = "has written nothing yet" if status.state is State.RUNNING else "wrote nothing"
        shown = f"; `torusrun watch {plain(self.run.run_id)}` shows its steps" if self.run.metrics.exists() else ""
        return f"rank {rank} {wrote}{shown}", []

    def failure(self) -> tuple[str, list[str]]:
        """How the attempt ended and the end of what its job wrote; ('', []) unless it ended, and badly."""
        status = self.status()
        if status.state in (State.PENDING, State.RUNNING, State.COMPLETED):
            return "", []
        name, lines = self._end_of_job()
        there = f"the end of the job's {name}:" if lines else "its job wrote nothing either"
        return f"{self._words(status)}; {there}", lines

    def _words(self, status: Status) -> str:
        because = f", {plain(status.reason)}" if status.reason else ""
        return f"attempt {self.attempt.number} is {status.state.value}{because}"

    def status(self) -> Status:
        """The state of this attempt. Of the newest one its scheduler is asked where need be."""
        if self.attempt.number == self.record.attempt:
            ((_, status),) = standing([self.run], time.time())
            return status
        with contextlib.suppress(SiteError):
            if end := End.read(self.attempt.end):
                return Status(end.state, end.reason)
        seen = last(self.record.events, Ended, self.attempt.number)
        return Status(seen.state, seen.reason) if seen else Status(State.UNKNOWN)

    def _end_of_job(self) -> tuple[str, list[str]]:
        """The end of the job's stderr, or of its stdout if it wrote nothing there."""
        for name, path in (("stderr", self.attempt.stderr), ("stdout", self.attempt.stdout)):
            if lines := tail(path, TAIL_LINES):
                return name, [self.safe(line) for line in lines]
        return "stdout", []


def logs(run: RunFolder, attempt: int | None = None) -> Logs:
    """The logs of an attempt, by default of the newest. Raises UserError for an attempt that there is not."""
    record = read_record(run)
    number, there = record.attempt if attempt is None else attempt, remains.attempts(run)
    if number not in there:
        raise UserError(f"{run.run_id} has no attempt {number} (it has: {', '.join(map(str, there)) or 'none'})")
    return Logs(record, run.attempt(number))
