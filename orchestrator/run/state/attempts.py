"""The attempts of a run: which is the newest, and the facts of each by ledger and metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torusrun.orchestrator.base.states import Cause, State
from torusrun.orchestrator.run.folder import attempt_folders, ledger
from torusrun.orchestrator.run.folder.events import Ended, Event, Refused, Started, Submitted, Submitting
from torusrun.orchestrator.run.folder.ledger import last
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.training.reporting.events import START


def newest(events: Sequence[Event], folders: Sequence[int]) -> int:
    """The number of the newest attempt: of those in the ledger and of folders that the ledger does not name.

    An attempt gets its folder before it is submitted. Without a folder and a job it was never submitted.
    """
    standing = ledger.standing(events)
    submitted = {event.attempt for event in events if isinstance(event, (Submitted, Started, Ended))}
    made = {number for number, stands in standing.items() if stands and (number in submitted or number in folders)}
    return max(made | ({*folders} - standing.keys()), default=1)


def newest_of(run: RunFolder) -> int:
    """The newest attempt of a run."""
    return newest(ledger.events(run.ledger), attempt_folders.attempts(run))


@dataclass(frozen=True)
class AttemptFacts:
    """One attempt. Times are of time.time(); `begun_s` is None before its start.

    `until_s` is when it ended, or now. If its end was not recorded, it is the last time that its records name, or the
    submission of the next attempt. `cause` is '' before its end. `resumes` is the checkpoint, or the memory of a host,
    from which it continues; None is step 0. `follows` is the attempt whose job submitted it; 0 if a client did.
    """

    attempt: int
    submitted_s: float
    until_s: float
    state: State
    job: str | None = None
    begun_s: float | None = None
    cause: str = ""
    hosts: tuple[str, ...] = ()
    resumes: str | None = None
    follows: int = 0

    @property
    def took_s(self) -> float | None:
        """The time from its start to its end, or to now; None before its start."""
        return None if self.begun_s is None else max(self.until_s - self.begun_s, 0.0)


def facts(events: Sequence[Event], rows: Sequence[Mapping[str, Any]], now_s: float, state: State) -> list[AttemptFacts]:
    """The attempts by number, without those that the scheduler refused. The newest is in this `state`.

    An earlier attempt without a record of its end is LOST.
    """
    attempts: list[AttemptFacts] = []
    of_number, of_rows = _by_number(events), by_attempt(rows)
    newest = max(of_number, default=0)
    for number in sorted(of_number, reverse=True):
        known = state if number == newest else State.LOST
        own = of_rows.get(number, ())
        seen_s = max([event.time_s for event in of_number[number]] + [float(row["t"]) for row in own])
        until_s = attempts[0].submitted_s if attempts else seen_s if known.over else now_s
        attempts.insert(0, _facts(of_number[number], own, known, until_s))
    return attempts


def by_attempt(rows: Iterable[Mapping[str, Any]]) -> dict[Any, list[Mapping[str, Any]]]:
    """The rows of each attempt that have a time."""
    of_attempt: dict[Any, list[Mapping[str, Any]]] = {}
    for row in rows:
        if type(row.get("attempt")) is int and type(row.get("t")) in (int, float):
            of_attempt.setdefault(row["attempt"], []).append(row)
    return of_attempt


def _by_number(events: Iterable[Event]) -> dict[int, list[Event]]:
    """The events of each attempt, without those before a refusal."""
    of_number: dict[int, list[Event]] = {}
    for event in events:
        if isinstance(event, Refused):
            of_number.pop(event.attempt, None)
        elif isinstance(event, (Submitting, Submitted, Started)):
            of_number.setdefault(event.attempt, []).append(event)
        elif isinstance(event, Ended) and event.attempt in of_number:
            of_number[event.attempt].append(event)
    return of_number


def _facts(events: Sequence[Event], rows: Sequence[Mapping[str, Any]], known: State, until_s: float) -> AttemptFacts:
    """The facts of an attempt. `known` and `until_s` hold if its end was not recorded.

    Its ranks say where their state came from; until then, its submission knew the checkpoint.
    """
    number = events[0].attempt
    end, intent, started = last(events, Ended, number), last(events, Submitting, number), last(events, Started, number)
    first = next((event for event in events if isinstance(event, Started)), None)
    jobs = [event.job for event in events if isinstance(event, (Submitted, Started))]
    origins = [row.get("resumed_from") for row in rows if row.get("event") == START]
    origin = next((text for text in reversed(origins) if type(text) is str), None)
    return AttemptFacts(
        number,
        submitted_s=events[0].time_s,
        until_s=end.time_s if end else until_s,
        state=end.state if end else known,
        job=jobs[-1] if jobs else None,
        begun_s=first.time_s if first else None,
        cause=(end.cause if end else Cause.of(known)).value if end or known.over else "",
        hosts=started.hosts if started else (),
        resumes=origin or (intent.resumes if intent else None),
        follows=intent.follows if intent else 0,
    )
