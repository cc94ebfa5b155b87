"""A held allocation: a run whose job waits for attempts of other runs. Its keeper starts them one by one.

Clients write requests into the folder `inbox` of its attempt, by write-then-rename. The keeper renames that folder
before it ends: after that no request can be written, and none is lost.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import read_object, required, write_json
from torusrun.orchestrator.base.typed import read_record
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Event, Started, Submitted, Submitting
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder

ATTEMPT = 1  # the only attempt of a run that holds an allocation
VARIABLE = "TORUSRUN_HELD"  # the attempt of the held allocation, for the processes that its keeper starts
MOST_REQUESTS = 10_000
HEARD_S = 30.0  # a keeper touches its pulse every 5 s, and a shared file system may show that later


class Closed(SiteError):
    """The keeper takes no more requests."""


@dataclass(frozen=True)
class KeeperState:
    """The state of the keeper. Times are of time.time().

    `busy` is the run whose attempt is running, '' if none is; `since_s` is when this state began. `waiting` are the
    runs whose attempts wait, in order. `attempts` is the number of attempts that have ended.
    """

    pid: int
    host: str
    until_s: float
    idle_s: float
    since_s: float
    busy: str = ""
    waiting: tuple[str, ...] = ()
    attempts: int = 0

    def write(self, attempt: Attempt) -> None:
        write_json(attempt.keeper, {"schema": 1, **asdict(self)})


@dataclass(frozen=True)
class AskedOf:
    """A request to the keeper: to start an attempt, or to end an attempt that does not end by itself."""

    attempt: Attempt
    kill: bool = False

    @property
    def run(self) -> RunFolder:
        return self.attempt.run


def keeper_state(attempt: Attempt) -> KeeperState | None:
    """The last state that the keeper of this attempt wrote; None before it holds. Raises SiteError if damaged."""
    return read_record(attempt.keeper, KeeperState)


def make(run: RunFolder, idle_s: float) -> None:
    """Note in an unfinished run that it holds an allocation, until no attempt has run in it for `idle_s`."""
    write_json(run.hold, {"schema": 1, "idle_s": idle_s})
    of(run.folder).inbox.mkdir(mode=0o700)


def idle_limit_s(run: RunFolder) -> float:
    """The time without an attempt after which the run gives its allocation back. Raises SiteError if not recorded."""
    return float(required(run.hold, read_object(run.hold) or {}, "idle_s", float, int))


def is_held(run: RunFolder) -> bool:
    """Whether a run holds an allocation for others."""
    return run.hold.exists()


def takes_attempts(run: RunFolder) -> bool:
    """Whether the keeper of a held allocation was alive within HEARD_S. False does not mean that it is gone."""
    attempt = of(run.folder)
    try:
        heard_s = attempt.pulse.lstat().st_mtime
    except OSError:
        return False
    is_open = attempt.keeper.exists() and attempt.inbox.is_dir() and not attempt.end.exists()
    return is_open and abs(time.time() - heard_s) < HEARD_S


def of(held: Path | str) -> Attempt:
    """The attempt of the held allocation in the folder `held`."""
    return RunFolder(Path(held)).attempt(ATTEMPT)


def until_s() -> float | None:
    """When the held allocation around this process ends (of time.time()); None outside of one."""
    folder = os.environ.get(VARIABLE)
    state = keeper_state(Attempt(Path(folder))) if folder else None
    return state.until_s if state else None


def job(held: RunFolder) -> str | None:
    """The job of a held allocation; None if its ledger names none."""
    events = ledger.events(held.ledger)
    event = ledger.last(events, Submitted, ATTEMPT) or ledger.last(events, Started, ATTEMPT)
    return event.job if event else None


def held_in(events: list[Event], number: int) -> str:
    """The folder of the held allocation in which an attempt runs; '' if the attempt has its own job."""
    submitting = ledger.last(events, Submitting, number)
    return submitting.held_in if submitting else ""


def ask(held: Attempt, request: AskedOf) -> None:
    """Write a request into the inbox. Raises Closed if the keeper takes no more, SiteError for a bad disk."""
    name = f"{time.time_ns():020}-{os.getpid()}.json"
    try:
        write_json(held.inbox / name, {"schema": 1, "attempt": str(request.attempt.folder), "kill": request.kill})
    except SiteError:
        if held.inbox.is_dir():
            raise
        raise Closed(f"{held.folder.parents[1].name} holds its allocation no longer") from None


def is_asked(held: Attempt, attempt: Attempt) -> bool:
    """Whether a request to start this attempt waits for the keeper."""
    requests = (request for inbox in (held.inbox, held.closed_inbox) for _, request in _requests(inbox))
    return AskedOf(attempt) in requests


def take(inbox: Path) -> Iterator[AskedOf]:
    """The requests in an inbox, oldest first. Each is removed when the caller asks for the next.

    Any other file, or another user's request, is removed and left out.
    """
    for path, request in _requests(inbox):
        if request:
            yield request
        with contextlib.suppress(OSError):  # a folder
            path.unlink()


def _requests(inbox: Path) -> Iterator[tuple[Path, AskedOf | None]]:
    """Each file in an inbox, oldest first, with its request; None if it is no request of this user."""
    try:
        names = os.listdir(inbox)  # the folder is opened each time: over NFS that fetches new entries
    except OSError:  # a file system that fails for a while must not end the allocation
        return
    for name in sorted(names)[:MOST_REQUESTS]:
        if name.startswith("."):
            continue
        try:
            yield inbox / name, _request(inbox / name)
        except SiteError:
            yield inbox / name, None


def _request(path: Path) -> AskedOf | None:
    kept = read_object(path) or {}
    folder = Path(required(path, kept, "attempt", str))
    known = folder.is_absolute() and folder.name.isdigit() and private.is_mine(folder)
    return AskedOf(Attempt(folder), required(path, kept, "kill", bool)) if known else None
