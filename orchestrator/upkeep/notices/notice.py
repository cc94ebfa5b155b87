"""A notice as a value: the facts of an attempt, as the JSON of a webhook and as variables of a command."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Ended, KeptGoing, Started
from torusrun.orchestrator.run.folder.run_folder import RunFolder

SCHEMA = 1
NO_RECORD = "it ended without a record"
WELL = (State.COMPLETED, State.CANCELLED)


@dataclass(frozen=True)
class Notice:
    """The notice about attempt `attempt` of a run at these `moments`."""

    run: str
    folder: str
    attempt: int
    moments: tuple[str, ...]
    state: str
    cause: str
    reason: str
    step: int | None
    hosts: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}

    def as_variables(self) -> dict[str, str]:
        """The variables of a command. No text of the run is part of a command line."""
        values = {**asdict(self), "moments": " ".join(self.moments), "hosts": " ".join(self.hosts)}
        named = {f"TORUSRUN_{key.upper()}": "" if value is None else str(value) for key, value in values.items()}
        return {name: value.replace("\0", "") for name, value in named.items()}

    @property
    def subject(self) -> str:
        return f"torusrun: {self.run} is {self.state}"


def notice(run: RunFolder, number: int, moments: tuple[str, ...]) -> Notice:
    """The notice of an attempt, by the ledger. An end that nothing records is LOST."""
    events = ledger.events(run.ledger)
    began, end = ledger.last(events, Started, number), ledger.last(events, Ended, number)
    hosts = began.hosts if began else ()
    if moments == ("start",):
        return Notice(run.run_id, str(run.folder), number, moments, State.RUNNING.value, "", "", None, hosts)
    state, cause = (end.state, end.cause.value) if end else (State.LOST, "")
    closed, reason = ledger.last(events, KeptGoing, number), end.reason if end else NO_RECORD
    if closed and state is not State.COMPLETED:
        reason = f"{reason}; no further attempt: {closed.why}"
    happened = (*moments, *(["failure"] if state not in WELL and "end" in moments else []))
    step = end.step if end else None
    return Notice(run.run_id, str(run.folder), number, happened, state.value, cause, reason, step, hosts)
