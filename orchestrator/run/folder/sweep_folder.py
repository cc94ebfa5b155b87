"""The folder of a sweep: its record, its arrays of jobs, and its members, which are runs like any other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from torusrun.orchestrator.base import lock
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.json_files import read_object, required, write_json
from torusrun.orchestrator.base.typed import read_record
from torusrun.orchestrator.run.folder import index
from torusrun.orchestrator.run.folder.run_folder import At, Attempt, RunFolder

SCHEMA = 1
LOCK_S = 2.0  # a look at a member holds the lock for a moment


@dataclass(frozen=True)
class SweepRecord:
    """What a sweep is: the settings of each of its members by key, and how many may run at the same time (0: all)."""

    members: tuple[dict[str, str], ...]
    at_once: int

    def write(self, sweep: SweepFolder) -> None:
        write_json(sweep.record, {"schema": SCHEMA, **asdict(self)}, secret=True)  # values of env may differ


@dataclass(frozen=True)
class ArrayFolder:
    """The folder of an array of jobs. Each of its tasks begins an attempt of another member."""

    folder: Path

    script = At("jobs.sh")
    stdout, stderr = At("jobs.out"), At("jobs.err")
    attempts = At("attempts.json")  # the list of the attempts, in the order of the tasks

    def write(self, attempts: Sequence[Attempt]) -> None:
        write_json(self.attempts, {"schema": SCHEMA, "attempts": [str(attempt.folder) for attempt in attempts]})

    def read(self) -> list[Attempt]:
        """The attempts, in the order of the tasks. Raises SiteError if the list cannot be read."""
        kept = read_object(self.attempts) or {}
        return [Attempt(Path(str(folder))) for folder in required(self.attempts, kept, "attempts", list)]


@dataclass(frozen=True)
class SweepFolder:
    """The folder of a sweep."""

    folder: Path

    record = At("sweep.json")
    arrays = At("arrays")
    lock, submitting_lock = At(".lock"), At(".submitting.lock")

    @property
    def sweep_id(self) -> str:
        return self.folder.name

    @property
    def unfinished(self) -> SweepFolder:
        return SweepFolder(self.folder.with_name(f".{self.folder.name}"))

    def array(self, number: int) -> ArrayFolder:
        return ArrayFolder(self.arrays / str(number))

    def member(self, number: int) -> RunFolder:
        return RunFolder(self.folder / f"{self.sweep_id}.{number}")

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the sweep's lock: only one client at a time submits its members. Raises UserError if another does."""
        with lock.held(self.lock, wait_s=LOCK_S) as mine:
            if mine is False:
                raise UserError(f"the members of {self.sweep_id} are being submitted already")
            yield

    @contextlib.contextmanager
    def submitting(self) -> Iterator[None]:
        """Show others that members are submitted now, so that nobody takes those without a job for LOST."""
        with lock.held(self.submitting_lock, wait_s=LOCK_S):
            yield

    @property
    def is_being_submitted(self) -> bool:
        """Whether a client submits members now. Thousands of them may take minutes."""
        with contextlib.suppress(SiteError), lock.held(self.submitting_lock, shared=True, wait_s=0.0) as mine:
            return mine is False
        return False

    def read(self) -> SweepRecord | None:
        """The record; None if it is missing. Raises SiteError if it is damaged."""
        return read_record(self.record, SweepRecord)

    def settings(self) -> list[dict[str, str]]:
        """The settings in which the members differ, by number. Raises SiteError if the record is damaged."""
        record = self.read()
        return list(record.members) if record else []


def number_of(member: RunFolder) -> int:
    """The number of a member in its sweep."""
    return int(member.run_id.rpartition(".")[2])


def by_sweep(runs: Sequence[RunFolder]) -> dict[Path, list[RunFolder]]:
    """The members of sweeps among these runs, in their order, by the folder of their sweep."""
    members_of: dict[Path, list[RunFolder]] = {}
    for run in runs:
        if run.sweep:
            members_of.setdefault(run.sweep, []).append(run)
    return {folder: sorted(members, key=number_of) for folder, members in members_of.items()}


def members_of(word: str, known: Sequence[RunFolder]) -> list[RunFolder]:
    """The members of the sweep whose id is `word` or begins with it; [] if it names a run, or nothing, or several.

    `known` are all runs.
    """
    named = [run for run in known if run.run_id.startswith(word)]
    if not word or any(run.run_id == word for run in named) or not all(run.sweep for run in named):
        return []
    (folder, members), *others = by_sweep(named).items() or [(None, [])]
    return index.existing(members) if folder and not others and folder.name.startswith(word) else []


def find(word: str, known: Sequence[RunFolder] | None = None) -> tuple[SweepFolder, list[RunFolder]]:
    """The sweep that `word` names, and its members: an id, its beginning, 'last', or a member's id.

    Raises UserError if no sweep matches.
    """
    known = index.runs() if known is None else known
    if word == "last":
        word = next((run.sweep.name for run in reversed(known) if run.sweep), word)
    if members := members_of(word, known):
        return SweepFolder(members[0].folder.parent), members
    run = index.find(word, known)
    if run.sweep is None:
        raise UserError(f"{run.run_id} is a run, not a sweep; `torusrun status {run.run_id}` shows it")
    return SweepFolder(run.sweep), by_sweep(known)[run.sweep]
