"""The end records of ranks and attempts, which they write themselves."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Annotated, TypeVar, cast

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import damaged, read_object, required, write_json, write_text
from torusrun.orchestrator.base.private import READABLE, open_regular, write_bytes
from torusrun.orchestrator.base.signals import signal_name
from torusrun.orchestrator.base.states import Cause, State, Status
from torusrun.orchestrator.base.typed import read_record, record_of
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.training.recipe.key import Limits

SMALLEST_FREE_BYTES = 65_536
RESERVED_BYTES = 16_384
ATTEMPT_BYTES = 262_144  # of a few ranks, with its plan and its logs
LARGEST_RANK = 10_000_000
LARGEST_RESERVED = 2_000  # characters of a reason, each of 6 bytes at most
FEW = 8  # hosts, or ranks, in a shortened end
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
DISK_FULL = "the disk that holds the run is full: free space and resume"


Code = Annotated[int, Limits(at_least=-255, at_most=255)]


class Meaning(str, Enum):
    """The meaning of the end of a rank's program. The program defines its exit codes (program/what_runs.py)."""

    DONE = "done"
    LATER = "later"  # it stopped after a checkpoint, to continue in another attempt
    NEVER = "never"  # it failed, and would fail again in every attempt
    CUT_OFF = "cut off"  # another rank was gone
    UNSAVED = "unsaved"  # its last files could not be written
    MISPLACED = "misplaced"  # it did not start, because the launcher put it on another host
    NO_IMAGE = "no image"  # it did not start, because its image was missing
    NOT_READY = "not ready"  # a service that was not ready in time, or did not stay so
    FAILED = "failed"


ASKS = {
    Meaning.LATER: "to continue later",
    Meaning.NEVER: "not to be started again",
}


@dataclass(frozen=True)
class RankEnd:
    """How a rank's process ended: an exit code, or a signal, or an `error` before it could start.

    `told` says that it received a request to end before it ended: then it is not the cause.
    """

    rank: Annotated[int, Limits(at_least=0, at_most=LARGEST_RANK)]
    host: str
    local_rank: int
    ended_s: float
    exit_code: Code | None = None
    signal: Code | None = None
    error: str = ""
    told: bool = False
    meaning: Meaning = Meaning.FAILED
    role: str = ""
    role_rank: Annotated[int, Limits(at_least=0, at_most=LARGEST_RANK)] = 0
    starved: bool = False  # whether the kernel killed a process of its control group for lack of memory

    @property
    def good(self) -> bool:
        return self.meaning is Meaning.DONE and not self.error

    @property
    def cut_off(self) -> bool:
        """Whether it ended because another rank was gone: then it is a witness, not the cause."""
        return self.meaning is Meaning.CUT_OFF

    @property
    def stopped(self) -> bool:
        """Whether it ended by itself after a checkpoint, so that another attempt continues."""
        return self.meaning is Meaning.LATER

    @property
    def failed(self) -> bool:
        """Whether it ended badly and was not asked to end."""
        return not self.good and not self.told and not self.stopped

    @property
    def words(self) -> str:
        """The end as a sentence, such as 'rank 3 (node2, local rank 1) was killed by SIGKILL'."""
        number = f"{self.role} rank {self.role_rank}" if self.role else f"rank {self.rank}"
        who = f"{number} ({self.host}, local rank {self.local_rank})"
        if self.meaning is Meaning.NOT_READY:
            return f"{who} {self.error}"
        if self.error:
            return f"{who} did not start: {self.error}"
        if self.signal is not None:
            return f"{who} was killed by {signal_name(self.signal)}"
        if self.cut_off:
            return f"{who} lost its connection to another rank"
        if self.exit_code == 0 and self.meaning is Meaning.FAILED:
            return f"{who} ended with exit code 0, before the run was done"
        if asks := ASKS.get(self.meaning):
            return f"{who} ended with exit code {self.exit_code}, which asks {asks}"
        return f"{who} ended with exit code {self.exit_code}"

    def write(self, path: Path) -> None:
        write_json(path, asdict(self))

    @classmethod
    def read(cls, path: Path) -> RankEnd:
        """The record in `path`. Raises SiteError if it is missing or damaged."""
        end = read_record(path, cls)
        if end is None:
            raise SiteError(f"{path}: it is missing; the rank left no record of its end")
        return end


class _Over:
    """Limits a state to the ends."""

    @staticmethod
    def complaint(state: State) -> str | None:
        return None if state.over else f"is {state.value}, which is not an end"


Final = Annotated[State, _Over]


@dataclass(frozen=True)
class End:
    """How an attempt ended. `certain` is False if a signal from outside ended it: the scheduler may know why.

    `again` is False if the program reported that every other attempt would fail in the same way. `kept_going` says
    that another attempt may follow without the user: the ledger says whether it does. The cause concerns `hosts` and
    `ranks`. `step` is the last step, `evidence` the facts that show the cause, and `reason` all of this in words
    (how_ended.py).
    """

    state: Final
    reason: str
    certain: bool = True
    again: bool = True
    kept_going: bool = False
    cause: Cause = Cause.UNKNOWN
    hosts: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    step: int | None = None
    evidence: Mapping[str, str] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write the end, on a full disk into the file of `reserve`. Raises SiteError if that file is missing too."""
        try:
            write_bytes(path, self._content(), READABLE)
        except OSError as error:
            self._write_reserved(path, error)
        with contextlib.suppress(OSError):
            reserve_of(path).unlink(missing_ok=True)

    def _write_reserved(self, path: Path, why: OSError) -> None:
        reserved, cut = reserve_of(path), {"hosts": self.hosts[:FEW], "ranks": self.ranks[:FEW], "evidence": {}}
        short = replace(self, reason=self.reason[:LARGEST_RESERVED], **cut)  # type: ignore[arg-type]
        end = on_full_disk(short) if why.errno in NO_ROOM else short
        try:
            with open(open_regular(reserved, os.O_RDWR), "r+b") as file:
                file.write(end._content())
                file.truncate()
            reserved.replace(path)
        except OSError:
            raise SiteError(f"{path}: cannot be written: {why.strerror}") from None

    @property
    def status(self) -> Status:
        """The state of an attempt with this end."""
        return Status(self.state, self.reason, cause=self.cause)

    def _content(self) -> bytes:
        return json.dumps({"schema": 1, **asdict(self), "state": self.state.value}, indent=1).encode() + b"\n"

    @classmethod
    def read(cls, path: Path) -> End | None:
        """The end in `path`; None if it is not written yet. Raises SiteError if it is damaged or its state unknown."""
        kept = read_object(path)
        if kept is None:
            return None
        required(path, kept, "certain", bool)
        try:  # the job script writes some keys only
            return cast(End, record_of(cls, kept, str))
        except ValueError as error:
            raise damaged(path, str(error)) from None

    @classmethod
    def readable(cls, path: Path) -> End | None:
        """The end in `path`; None if it is not written yet, or cannot be read."""
        with contextlib.suppress(SiteError):
            return cls.read(path)
        return None


Ending = TypeVar("Ending", End, Status)


def no_room(folder: Path) -> bool:
    """Whether the disk of a folder is nearly full."""
    import shutil  # imported late: `status` rarely needs it

    try:
        return shutil.disk_usage(folder).free < SMALLEST_FREE_BYTES
    except OSError:
        return False


def has_room(folder: Path) -> bool:
    """Whether the files of an attempt fit below a run's folder, by writing as much: only that shows a quota."""
    probe = folder / f".room.{os.getpid()}"
    try:
        write_bytes(probe, bytes(ATTEMPT_BYTES))
        probe.unlink()
    except OSError as error:
        return error.errno not in NO_ROOM
    return True


def on_full_disk(end: Ending) -> Ending:
    """The same end, with the full disk in its reason, and as the cause of a failure: a full disk lacks most records."""
    reason = end.reason if DISK_FULL in end.reason else f"{DISK_FULL}; {end.reason}"
    return replace(end, reason=reason, cause=Cause.DISK if end.state in (State.FAILED, State.LOST) else end.cause)


def reserve(end: Path) -> None:
    """Reserve space on the disk for an end. Raises SiteError if the disk has none."""
    write_text(reserve_of(end), " " * RESERVED_BYTES)


def reserve_of(end: Path) -> Path:
    return end.with_name(f".{end.name}.reserve")


# The states of a service: a silent service was ready and does not answer now; the last two judge each checkpoint.
LOST_S = 60.0  # without an answer, after which a service that has to stay alive is lost
WAITING, READY, SILENT, LATE, JUDGING, JUDGED = "waiting", "ready", "silent", "late", "judging", "judged"


def is_done(attempt: Attempt) -> bool:
    """Whether the training of this attempt recorded that it is done, and its checkpoints are judged.

    False if a record cannot be read.
    """
    try:
        kept = read_object(attempt.done) or {}
        done = type(kept.get("attempt")) is int and kept["attempt"] == attempt.number
        states = attempt.roles.glob("*.state.json") if done else ()
        return done and all((read_object(state) or {}).get("state") != JUDGING for state in states)
    except SiteError:
        return False
