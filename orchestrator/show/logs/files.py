"""The output of an attempt: each file, read as it grows, the files of its ranks and its job, and why they are empty.

An index may have the times of lines (run/folder/log_times.py).
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from torusrun.orchestrator.base import whole_lines
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.private import open_kept
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.base.whole_lines import TAIL_BYTES
from torusrun.orchestrator.run.folder import attempt_folders
from torusrun.orchestrator.run.folder.copying import written
from torusrun.orchestrator.run.folder.events import Ended, Event
from torusrun.orchestrator.run.folder.ledger import last
from torusrun.orchestrator.run.folder.log_times import LogTimes
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.state.poll import standing
from torusrun.orchestrator.run.state.record import Record, read_record
from torusrun.orchestrator.run.state.roles import labels, rank_of, roles, unready
from torusrun.orchestrator.show.logs.ranks import who

BLOCK_BYTES = whole_lines.BLOCK_BYTES


class LogLine(NamedTuple):
    """A line of output: the latest time of its writing (as of time.time(), None if unknown), origin, and text."""

    time_s: float | None
    origin: str
    text: str

    def __str__(self) -> str:
        return f"{self.origin}{self.text}"


@dataclass
class FollowedFile:
    """One file and the position of reading. `left` is an unfinished line at the end.

    It is read in blocks of `block_bytes` and is open only while a block is read: thousands may be read together.
    """

    origin: str
    path: Path
    block_bytes: int = BLOCK_BYTES
    read_bytes: int = 0
    left: bytes = b""
    inode: int = 0
    refused: str = ""
    times: LogTimes = field(init=False)

    def __post_init__(self) -> None:
        self.times = LogTimes(self.path)

    def begin(self, inode: int, at_bytes: int) -> None:
        """Read the file with this inode from `at_bytes` on, and any other file from its beginning."""
        self.inode, self.read_bytes = inode, at_bytes

    def begin_with_last(self, lines: int, largest_bytes: int) -> None:
        """Read only the last `lines` lines, of at most `largest_bytes`."""
        with contextlib.suppress(OSError), open(open_kept(self.path), "rb", buffering=0) as file:
            at = whole_lines.start_of_last(file.fileno(), lines, largest_bytes)
            self.begin(os.fstat(file.fileno()).st_ino, at)

    def new(self, *, whole: bool) -> Iterator[LogLine]:
        """The lines that were added since the last call; without `whole` also an unfinished line.

        A file that was cut short or replaced is read from its beginning. A file that cannot be read is reported once.
        """
        written_s = 0.0
        while True:
            try:
                block, written_s = self._block()
            except FileNotFoundError:
                return
            except OSError as error:
                if self.refused != error.strerror:
                    self.refused = str(error.strerror)
                    yield LogLine(None, self.origin, f"torusrun: {self.path} cannot be read: {self.refused}")
                return
            if not block:
                break
            yield from self._whole_lines(block, written_s)
        if self.left and not whole:
            yield from self._texts(self.left, self.read_bytes, written_s)
            self.left = b""

    def _block(self) -> tuple[bytes, float]:
        """(The next block, b'' at the end of the file; the time when the file was last written)."""
        descriptor = open_kept(self.path)
        try:
            facts = os.fstat(descriptor)
            if facts.st_size < self.read_bytes or facts.st_ino != self.inode:
                self.inode, self.read_bytes, self.left, self.times = facts.st_ino, 0, b"", LogTimes(self.path)
            start = written(descriptor, self.read_bytes)
            block = b"" if start is None else os.pread(descriptor, self.block_bytes, start)
            if start is not None and block:
                self.read_bytes = start + len(block)
            return block, facts.st_mtime
        finally:
            os.close(descriptor)

    def _whole_lines(self, block: bytes, written_s: float) -> Iterator[LogLine]:
        text = self.left + block
        end = len(text) if len(text) >= BLOCK_BYTES and b"\n" not in text else text.rfind(b"\n") + 1
        text, self.left = text[:end], text[end:]  # a very long line without an end is returned in pieces
        yield from self._texts(text, self.read_bytes - len(self.left), written_s)

    def _texts(self, lines: bytes, end: int, written_s: float) -> Iterator[LogLine]:
        """The lines in these bytes, which end at the byte `end` of the file."""
        at, start = 0, end - len(lines)
        while at < len(lines):
            first = lines.find(b"\n", at) + 1 or len(lines)
            time_s, known = self.times.when(start + first, written_s)
            stop = len(lines) if known >= end else lines.rfind(b"\n", at, known - start) + 1
            for text in lines[at:stop].decode(errors="replace").removesuffix("\n").split("\n"):
                yield LogLine(time_s, self.origin, drawn(text))
            at = stop


LINE_BYTES = 4096


def newest_line(path: Path) -> str:
    """The newest line of a log that is not blank, safe to print; '' if there is none.

    For a progress bar, its newest state.
    """
    lines = [line for line in tail(path, 10, LINE_BYTES) if line.strip()]
    return plain(lines[-1]).strip() if lines else ""


def drawn(line: str) -> str:
    """A line as a terminal would show it at the end: for a progress bar, its newest state."""
    if "\r" not in line:
        return line
    return next((part for part in reversed(line.split("\r")) if part.strip()), "")


def tail(path: Path, most: int, largest_bytes: int = TAIL_BYTES) -> list[str]:
    """At most `most` lines at the end of a file, from its last `largest_bytes`; [] if there are none."""
    return [drawn(line.decode(errors="replace")) for line in whole_lines.tail(path, largest_bytes)[-most:]]


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

    @cached_property
    def labels(self) -> dict[int, str]:
        """'rollout 0' for the log of each rank of a run with roles; {} for other runs."""
        return labels(self.attempt) if self.record.plan and self.record.plan.roles else {}

    def origin(self, rank: int) -> str:
        """What stands before the lines of a rank: its number, or its role and its number in it."""
        width = max(map(len, self.labels.values()), default=len(str(self.ranks - 1)))
        return f"{self.name}{self.labels.get(rank, str(rank)):>{width}} | "

    def named(self, rank: int) -> str:
        """'rank 3', or 'rollout rank 0'."""
        return who(self.labels.get(rank, str(rank)))

    def rank(self, number: int | None, role: str = "") -> int | None:
        """The number in the launch of a rank of a role. Raises UserError if the run has no such role or rank."""
        if number is None:
            return None
        if role or self.labels:
            return rank_of(self.run.run_id, self.attempt, role, number)
        if number < 0 or (self.record.plan and number >= self.ranks):
            raise UserError(f"{self.run.run_id} has no rank {number}: its ranks are 0 to {self.ranks - 1}")
        return number

    def files(self, rank: int | None = None, role: str = "") -> list[tuple[str, Path]]:
        """The file of a rank, or (None) the files of the job and of all ranks, each with the origin of its lines.

        With a `role` they are those of its ranks alone.
        """
        if rank is not None:
            return [(self.name, self.attempt.rank_log(rank))]
        try:
            names = os.listdir(self.attempt.logs)
        except OSError:
            names = []
        logs = sorted(int(match[1]) for name in names if (match := RANK_LOG.fullmatch(name)))
        job = f"{self.name}job | "
        of_job = [] if role else [(job, self.attempt.stdout), (job, self.attempt.stderr)]
        chosen = [number for number in logs if not role or self.labels.get(number, "").rpartition(" ")[0] == role]
        return of_job + [(self.origin(number), self.attempt.rank_log(number)) for number in chosen]

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
            return f"{self.named(rank)} has not begun: {self._words(status)}", []
        if status.state not in (State.RUNNING, State.COMPLETED):
            words, lines = self.failure()
            return f"{self.named(rank)} wrote nothing; {words}", lines
        wrote = "has written nothing yet" if status.state is State.RUNNING else "wrote nothing"
        shown = f"; `torusrun watch {plain(self.run.run_id)}` shows its steps" if self.run.metrics.exists() else ""
        waits = f"; {not_ready}" if (not_ready := self._unready(status)) else ""
        return f"{self.named(rank)} {wrote}{shown}{waits}", []

    def _unready(self, status: Status) -> str:
        """The services for which the ranks may wait, in words."""
        return unready(roles(self.attempt), time.time()) if self.labels and status.state is State.RUNNING else ""

    def failure(self) -> tuple[str, list[str]]:
        """How the attempt ended, and the end of its job's output; ('', []) unless it ended without success."""
        status = self.status()
        if status.state in (State.PENDING, State.RUNNING, State.COMPLETED):
            return "", []
        name, lines = self.end_of_job()
        output = f"the end of the job's {name}:" if lines else "its job wrote nothing either"
        return f"{self._words(status)}; {output}", lines

    def _words(self, status: Status) -> str:
        because = f", {plain(status.reason)}" if status.reason else ""
        return f"attempt {self.attempt.number} is {status.state.value}{because}"

    def status(self) -> Status:
        """The state of this attempt. For the newest attempt, the scheduler is queried if needed."""
        if self.attempt.number == self.record.attempt:
            ((_, status),) = standing([self.run], time.time())
            return status
        return next((end.status for end in self.ends(self.record.events)), Status(State.UNKNOWN))

    def ends(self, events: Sequence[Event]) -> Iterator[End]:
        """How the attempt ended: by its own record if that can be read, then by these events of the ledger."""
        with contextlib.suppress(SiteError):
            if end := End.read(self.attempt.end):
                yield end
        if seen := last(events, Ended, self.attempt.number):
            yield seen.end

    def end_of_job(self) -> tuple[str, list[str]]:
        """The end of the job's stderr, or of its stdout if stderr is empty."""
        for name, path in (("stderr", self.attempt.stderr), ("stdout", self.attempt.stdout)):
            if lines := tail(path, TAIL_LINES):
                return name, [self.safe(line) for line in lines]
        return "stdout", []


def logs(run: RunFolder, attempt: int | None = None) -> Logs:
    """The logs of an attempt, by default of the newest. Raises UserError if there is no such attempt."""
    record = read_record(run)
    number, existing = record.attempt if attempt is None else attempt, attempt_folders.attempts(run)
    if number not in existing:
        raise UserError(f"{run.run_id} has no attempt {number} (it has: {', '.join(map(str, existing)) or 'none'})")
    return Logs(record, run.attempt(number))


def all_logs(run: RunFolder) -> list[Logs]:
    """The logs of all attempts. Raises UserError if there are none."""
    newest = logs(run)
    return [replace(newest, attempt=run.attempt(number)) for number in attempt_folders.attempts(run)]


def named(attempts: Iterable[Logs]) -> list[Logs]:
    """These logs by attempt; each has its attempt's name if they are several."""
    ordered = sorted(attempts, key=lambda logs: logs.attempt.number)
    return [replace(logs, name=f"#{logs.attempt.number} " if len(ordered) > 1 else "") for logs in ordered]
