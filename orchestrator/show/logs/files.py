"""The output of an attempt: the files of its ranks and of its job, and why they are empty."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.run.folder import attempt_folders
from torusrun.orchestrator.run.folder.events import Ended
from torusrun.orchestrator.run.folder.ledger import last
from torusrun.orchestrator.run.folder.records import End, RankEnd
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.state.poll import standing
from torusrun.orchestrator.run.state.record import Record, read_record
from torusrun.orchestrator.show.logs.source import tail

RANK_LOG = re.compile(r"rank-(\d{4,8})\.log")
TAIL_LINES = 20


@dataclass(frozen=True)
class Logs:
    """The logs of one attempt of a run. `name` is the prefix of each line: '', or the attempt."""

    record: Record
    attempt: Attempt
    name: str = ""

    @property
    def run(self) -> RunFolder:
        return self.record.folder

    @property
    def ranks(self) -> int:
        return self.record.plan.ranks if self.record.plan else 1

    def check(self, rank: int | None) -> None:
        """Raise UserError if the run has no such rank."""
        if rank is not None and (rank < 0 or (self.record.plan and rank >= self.ranks)):
            raise UserError(f"{self.run.run_id} has no rank {rank}: its ranks are 0 to {self.ranks - 1}")

    def files(self, rank: int | None = None) -> list[tuple[str, Path]]:
        """The file of a rank, or (None) the files of the job and of all ranks, each with the origin of its lines."""
        if rank is not None:
            return [(self.name, self.attempt.rank_log(rank))]
        try:
            names = os.listdir(self.attempt.logs)
        except OSError:
            names = []
        width = len(str(self.ranks - 1))
        logs = sorted(int(found[1]) for name in names if (found := RANK_LOG.fullmatch(name)))
        job = f"{self.name}job | "
        return [(job, self.attempt.stdout), (job, self.attempt.stderr)] + [
            (f"{self.name}{number:{width}} | ", self.attempt.rank_log(number)) for number in logs
        ]

    def safe(self, line: str) -> str:
        """A line that is safe to print: a line of another user's run cannot control the terminal."""
        return line if self.record.mine else plain(line)

    def wrote(self, rank: int) -> bool:
        """Whether a rank's log has any content."""
        try:
            return self.attempt.rank_log(rank).lstat().st_size > 0
        except OSError:
            return False

    def silence(self, rank: int) -> tuple[str, list[str]]:
        """Why a rank's log is empty, in one line, and the end of its job's output if that explains a failure."""
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
        """How the attempt ended, and the end of its job's output; ('', []) unless it ended without success."""
        status = self.status()
        if status.state in (State.PENDING, State.RUNNING, State.COMPLETED):
            return "", []
        name, lines = self.end_of_job()
        there = f"the end of the job's {name}:" if lines else "its job wrote nothing either"
        return f"{self._words(status)}; {there}", lines

    def _words(self, status: Status) -> str:
        because = f", {plain(status.reason)}" if status.reason else ""
        return f"attempt {self.attempt.number} is {status.state.value}{because}"

    def status(self) -> Status:
        """The state of this attempt. For the current and the newest attempt, the scheduler is queried if needed."""
        number, newest = self.attempt.number, self.record.newest
        if number in (self.record.attempt, newest):
            ((_, status),) = standing([self.run], time.time(), newest=number == newest)
            return status
        with contextlib.suppress(SiteError):
            if end := End.read(self.attempt.end):
                return end.status
        seen = last(self.record.events, Ended, self.attempt.number)
        return seen.end.status if seen else Status(State.UNKNOWN)

    def end_of_job(self) -> tuple[str, list[str]]:
        """The end of the job's stderr, or of its stdout if stderr is empty."""
        for name, path in (("stderr", self.attempt.stderr), ("stdout", self.attempt.stdout)):
            if lines := tail(path, TAIL_LINES):
                return name, [self.safe(line) for line in lines]
        return "stdout", []


def written_s(path: Path) -> float:
    """When a file was last written, in seconds of its file system's clock; infinite if it cannot be read."""
    try:
        return path.lstat().st_mtime
    except OSError:
        return float("inf")


def logs(run: RunFolder, attempt: int | None = None) -> Logs:
    """The logs of an attempt, by default of the newest. Raises UserError if there is no such attempt."""
    record = read_record(run)
    number, there = record.attempt if attempt is None else attempt, attempt_folders.attempts(run)
    if number not in there:
        raise UserError(f"{run.run_id} has no attempt {number} (it has: {', '.join(map(str, there)) or 'none'})")
    return Logs(record, run.attempt(number))


def all_logs(run: RunFolder) -> list[Logs]:
    """The logs of all attempts. Raises UserError if there are none."""
    newest = logs(run)
    return [replace(newest, attempt=run.attempt(number)) for number in attempt_folders.attempts(run)]


def named(found: Iterable[Logs]) -> list[Logs]:
    """These logs by attempt; each has its attempt's name if there are several."""
    known = sorted(found, key=lambda one: one.attempt.number)
    return [replace(one, name=f"#{one.attempt.number} " if len(known) > 1 else "") for one in known]


def bad_ends(attempt: Attempt) -> list[RankEnd]:
    """The ends of the ranks that failed, by time. Records that cannot be read are left out."""
    ends = []
    for rank in attempt_folders.recorded(attempt)["end"]:
        with contextlib.suppress(SiteError):
            ends.append(RankEnd.read(attempt.rank_end(rank)))
    return sorted((end for end in ends if end.failed), key=lambda end: end.ended_s)


def who(origin: str) -> str:
    """Who wrote lines with this origin: 'rank 3', 'the job', 'rank 3 of attempt 2'."""
    name = origin.removesuffix(" | ").rpartition("#")[2].strip()
    attempt, _, name = name.rpartition(" ") if "#" in origin else ("", "", name)
    writer = f"rank {name}" if name.isdecimal() else f"the {name}"
    return f"{writer} of attempt {attempt.strip()}" if attempt else writer
