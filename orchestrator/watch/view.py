"""One run as its user sees it: state, reason, place and progress."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.runs import metrics
from orchestrator.runs.files import read_json
from orchestrator.runs.folder import RunFolder
from orchestrator.runs.ledger import Event, events, last
from orchestrator.runs.outcome import resolve
from orchestrator.runs.records import End
from orchestrator.states import State, Status

TAIL_BYTES = 16_384


@dataclass(frozen=True)
class View:
    """A run at one moment."""

    run: str
    state: State
    reason: str
    attempt: int
    job: str | None
    scheduler: str
    grid: tuple[int, int]
    ranks: int
    hosts: tuple[str, ...]
    step: int | None
    total_steps: int | None
    images_per_s: float | None
    accuracy: float | None
    folder: str

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "state": self.state.value}


@dataclass(frozen=True)
class Record:
    """What the run folder says by itself, read once."""

    folder: RunFolder
    plan: dict[str, Any]
    events: list[Event]
    attempt: int
    end: End | None

    @property
    def job(self) -> str | None:
        event = last(self.events, "submitted", self.attempt) or last(self.events, "started", self.attempt)
        return str(event.details["job"]) if event else None

    def status(self, job: Status | None) -> Status:
        return resolve(self.events, self.attempt, self.end, job)

    @property
    def settled(self) -> bool:
        """Whether the folder alone says how the newest attempt ended."""
        return bool(self.end and self.end.certain) or last(self.events, "ended", self.attempt) is not None

    def view(self, status: Status) -> View:
        rows = metrics.read(self.folder.metrics, TAIL_BYTES)
        at = metrics.newest(rows, "start", "step", "stop", "done") or {}
        paced = metrics.newest(rows, "step") or {}
        judged = metrics.newest(rows, "eval", "done") or {}
        started = last(self.events, "started", self.attempt)
        hosts = tuple(started.details["hosts"]) if started else status.hosts
        x, y = self.plan["grid"]
        return View(
            self.plan["run"],
            status.state,
            status.reason,
            self.attempt,
            self.job,
            self.plan["site"]["scheduler"],
            (x, y),
            self.plan["ranks"],
            hosts,
            at.get("step"),
            at.get("total_steps", paced.get("total_steps")),
            paced.get("images_per_s"),
            judged.get("accuracy"),
            str(self.folder.folder),
        )


def read_record(run: RunFolder) -> Record:
    """Read a run's own account of itself. Raises SiteError where it is damaged."""
    found = events(run.ledger)
    attempt = max(
        (e.attempt for e in found if e.kind == "submitting" and not last(found, "refused", e.attempt)), default=1
    )
    return Record(run, read_json(run.plan), found, attempt, End.read(run.attempt(attempt).end))
