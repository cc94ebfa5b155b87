"""The content of a run folder, read once, and the view of the run by it."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from typing import Any

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.run.bad_nodes.left_out import listed
from torusrun.orchestrator.run.folder import allocation, attempt_folders, index, ledger, metrics, shown_plan
from torusrun.orchestrator.run.folder.events import Ended, Event, NetworkChosen, Started, Submitted, Submitting
from torusrun.orchestrator.run.folder.ledger import last
from torusrun.orchestrator.run.folder.records import End, is_done
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.shown_plan import Planned
from torusrun.orchestrator.run.state import attempts, next_attempt
from torusrun.orchestrator.run.state.outcome import resolve
from torusrun.orchestrator.run.state.pace import RunProgress, progress
from torusrun.orchestrator.run.state.remarks import now_by_writer_s, remarks, waiting
from torusrun.orchestrator.run.state.roles import main_started, roles, unready
from torusrun.orchestrator.run.state.view import View

TAIL_BYTES = 16_384
NOT_CHOSEN = "the job chooses it once it knows its hosts"
RUN_ID = re.compile(r"[\w.-]+")


@dataclass(frozen=True)
class Record:
    """The content of the run folder alone, read once."""

    folder: RunFolder
    owner: int | None
    plan: Planned | None
    events: list[Event]
    attempt: int  # the newest
    end: End | None
    done: bool  # whether the training recorded that it is done; False, too, if the end record says COMPLETED
    end_damage: str  # of the end record
    damage: tuple[str, ...]  # all other

    @property
    def mine(self) -> bool:
        """Whether the run is of this process's user. Only a run's user writes into it and queries its scheduler."""
        return self.owner == os.geteuid()

    @property
    def job(self) -> str | None:
        event = last(self.events, Submitted, self.attempt) or last(self.events, Started, self.attempt)
        return event.job if event else None

    @property
    def jobs(self) -> tuple[str, ...]:
        """Its job, and those that begin after it without the user; () if it is not known."""
        return (self.job, *next_attempt.later_jobs(self.events, self.attempt, self.job)) if self.job else ()

    @property
    def scheduler(self) -> str:
        """The scheduler's name; '' if unknown."""
        event = last(self.events, Submitted, self.attempt)
        return self.plan.scheduler if self.plan else event.scheduler if event else ""

    @property
    def site(self) -> str:
        """The name of its site; '' if unknown."""
        return plain(self.plan.site) if self.plan else ""

    @property
    def submitted_s(self) -> float | None:
        """When the attempt was submitted (of time.time()); None if the ledger does not say."""
        return next_attempt.submitted_s(self.events, self.attempt)

    def status(self, job: Status | None, now_s: float) -> Status:
        own = resolve(self.events, self.attempt, self.end, job, now_s, done=self.done)
        return next_attempt.at_the_end(self.events, self.attempt, own) if self.ended else own

    @property
    def ended(self) -> bool:
        """Whether the folder alone says how the attempt ended."""
        return bool(self.end and self.end.certain) or last(self.events, Ended, self.attempt) is not None

    @property
    def continues(self) -> bool:
        """Whether another attempt may follow without the user. Its jobs then have their own state."""
        done = self.end and self.end.certain and self.end.state is State.COMPLETED
        return not done and next_attempt.may_begin_another(self.events, self.attempt)

    @property
    def settled(self) -> bool:
        """Whether the folder alone says that and how the run is over."""
        return self.ended and not self.continues

    @property
    def hopeless(self) -> bool:
        """Whether its end stays unknown: its folder is gone, or too damaged to name its job."""
        return not self.settled and (self.owner is None or bool(self.mine and self.damage and not self.job))

    def view(self, status: Status, now_s: float) -> View:
        """The view of the run at `now_s` (of time.time()), with its attempt in this state."""
        rows, damage = self._rows()
        started = last(self.events, Started, self.attempt)
        network = last(self.events, NetworkChosen, self.attempt)
        submitting = last(self.events, Submitting, self.attempt)
        running_s = now_s if status.state is State.RUNNING else None
        own = [row for row in rows if row.get("attempt") == self.attempt]
        shown = rows if status.state.over else own  # earlier attempts say nothing about the progress of this attempt
        at = self._progress(shown, started, running_s)
        works = running_s is not None and started and not self.end  # before, the supervisor may copy an image
        attempt = self.folder.attempt(self.attempt)
        seen = roles(attempt) if works and self.plan and self.plan.roles else {}
        not_ready, begun = unready(seen, now_s), main_started(seen)
        silent = self.plan and self.plan.command and not rows  # a user's program that records nothing need not pause
        remarked = remarks(attempt, now_s, not_ready if begun else "") if works else ""
        grid, hosts, grid_reason = self._place()
        forecast = None if status.state.over else shown_plan.read_forecast(self.folder)
        return View(
            run=self.plan.run if self.plan and RUN_ID.fullmatch(self.plan.run) else self.folder.run_id,
            state=status.state,
            reason=plain("; ".join(filter(None, (status.reason, remarked)))),
            attempt=self.attempt,
            job=self.job,
            scheduler=self.scheduler,
            grid=grid,
            ranks=math.prod(grid) if grid else self.plan.ranks if self.plan else None,
            hosts=hosts or status.hosts,
            step=at.step,
            total_steps=at.total_steps,
            images_per_s=at.images_per_s,
            accuracy=at.accuracy,
            folder=str(self.folder.folder),
            damaged=tuple(
                text.replace(f"{self.folder.folder}/", "") for text in (*self.damage, *self._end_words(), *damage)
            ),
            last_step_age_s=at.pace.age_s,
            usual_step_s=at.pace.usual_s,
            pause="" if self.end or self.done or not begun or silent else at.pace.pause,
            site=self.site,
            submitted_s=self.submitted_s,
            age_s=None if self.submitted_s is None or status.state.over else max(now_s - self.submitted_s, 0.0),
            eta_s=at.eta_s,
            loss=at.loss,
            newest_result=at.newest_result,
            of_roles=at.of_roles,
            network=plain(network.network) if network else "",
            grid_reason=plain(grid_reason),
            waiting="" if damage else plain(self._waiting(status, own, now_s, "" if begun else not_ready)),
            cause=status.cause.value if status.state.over else "",
            left_out=plain(listed(submitting.left_out)) if submitting else "",
            forecast_s=(forecast.total_s, *forecast.bounds_s) if forecast else (),
            roles={name: role.state for name, role in seen.items()},
        )

    def _progress(self, rows: list[dict[str, Any]], started: Started | None, now_s: float | None) -> RunProgress:
        """The progress. A pause by this machine's clock is checked again by the clock that wrote the times."""
        started_s = started.time_s if started else None
        at = progress(rows, self.attempt, started_s, now_s)
        file, last_s = self.folder.metrics, rows[-1].get("t") if rows else None
        if not rows and self.events:
            file, last_s = self.folder.ledger, self.events[-1].time_s
        if not at.pace.pause or last_s is None or now_s is None:
            return at
        return progress(rows, self.attempt, started_s, now_by_writer_s(file, last_s, now_s))

    def _waiting(self, status: Status, rows: list[dict[str, Any]], now_s: float, unready: str) -> str:
        if self.end or self.done or allocation.is_held(self.folder):
            return ""
        command, pattern = (self.plan.command, self.plan.pattern) if self.plan else (False, False)
        return waiting(
            status, self.events, self.folder.attempt(self.attempt), rows,
            command=command, pattern=pattern, now_s=now_s, unready=unready,
        )  # fmt: skip

    def _rows(self) -> tuple[list[dict[str, Any]], list[str]]:
        """(the newest metrics, their damage in words)."""
        try:
            rows, bad = metrics.checked(self.folder.metrics, TAIL_BYTES)
        except SiteError as error:
            return [], [f"{error}; the progress is not known"]
        return rows, [f"{self.folder.metrics}: {bad} of its last lines cannot be read"] if bad else []

    def _place(self) -> tuple[tuple[int, ...] | None, tuple[str, ...], str]:
        """(grid, hosts, reason of the grid), from the plan and the ledger, or else from the placement."""
        started = last(self.events, Started, self.attempt)
        grid = (self.plan.grid if self.plan else None) or (started.grid if started else None)
        hosts = started.hosts if started else ()
        reason = started.grid_reason if started else "" if grid or not self.plan else NOT_CHOSEN
        if (grid and hosts) or not self.damage:
            return grid, hosts, reason
        placed_grid, placed_hosts = attempt_folders.placed(self.folder.attempt(self.attempt))
        return grid or placed_grid, hosts or tuple(placed_hosts), reason

    def _end_words(self) -> list[str]:
        instead = "the ledger says how it ended" if self.ended else "the scheduler is queried instead"
        return [f"{self.end_damage}; {instead}"] if self.end_damage else []


def read_record(run: RunFolder) -> Record:
    """Read the record of a run, as far as it is readable."""
    folders = attempt_folders.attempts(run)
    plan, plan_damage = shown_plan.find(run, folders)
    events, ledger_damage = ledger.read(run.ledger)
    if ledger_damage:
        ledger_damage = f"{run.ledger}: {ledger_damage}; the state comes from the folders of its attempts"
    attempt = attempts.newest(events, folders)
    try:
        end, end_damage = End.read(run.attempt(attempt).end), ""
    except SiteError as error:
        end, end_damage = None, str(error)
    lost = "" if attempt in folders else f"{run.attempt(attempt).folder}: this folder is missing, and its logs with it"
    damage = tuple(text for text in (plan_damage, ledger_damage, lost) if text)
    completed = end is not None and end.certain and end.state is State.COMPLETED
    return Record(
        run, index.owner(run), plan, events, attempt, end,
        done=not completed and is_done(run.attempt(attempt)), end_damage=end_damage, damage=damage,
    )  # fmt: skip
