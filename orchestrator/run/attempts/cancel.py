"""Ends runs at their user's request. Running ranks save a checkpoint first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic, sleep

from torusrun.orchestrator.base.errors import SiteError, TorusrunError, UserError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.run.attempts import in_hold
from torusrun.orchestrator.run.folder import allocation, attempt_folders, claim, index, ledger
from torusrun.orchestrator.run.folder.events import CancelRequested, Ended, KeptGoing, Started
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.plan_files import read_plan
from torusrun.orchestrator.run.state import next_attempt
from torusrun.orchestrator.run.state.attempts import newest_of
from torusrun.orchestrator.run.state.poll import views
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.schedulers import client

WAITED = "cancelled by its user while the next attempt waited"
LOOK_S = 0.2
NOTICED_S = 10.0  # for a cancellation to reach the supervisor through the file system, and the end to reach us

Refused = dict[RunFolder, TorusrunError]


@dataclass(frozen=True)
class _Ending:
    """An attempt that was asked to end: whether it began, and whether it runs in a held allocation.

    `several` says that later jobs of the run may wait in the queue, `unsure` that nobody knows whether it is over.
    """

    run: RunFolder
    attempt: int
    job: str
    site: Site
    begun: bool
    in_held: bool
    several: bool
    unsure: bool

    @property
    def over(self) -> bool:
        return self.run.attempt(self.attempt).end.exists()


def cancel(run: RunFolder) -> None:
    """End a run's attempt. Raises UserError if it is over already, or if its job is unknown."""
    for error in cancel_all([run]).values():
        raise error


def cancel_all(runs: Sequence[RunFolder]) -> Refused:
    """End the attempts of these runs, with as few scheduler commands as possible; the errors.

    Runs have the same error if a single command for all their jobs failed.
    """
    refused: Refused = {}
    for run in runs:
        try:
            index.own(run)
        except TorusrunError as error:
            refused[run] = error
    seen = _looked([run for run in runs if run not in refused])
    _cancel(seen, refused)
    # The job of a run may have made the next attempt meanwhile.
    followed = [run for run, view in seen.items() if run not in refused and newest_of(run) > view.attempt]
    _cancel({run: view for run, view in _looked(followed).items() if not view.state.over}, refused)
    return refused


def _looked(runs: Sequence[RunFolder]) -> dict[RunFolder, View]:
    return dict(zip(runs, views(runs, fresh=True), strict=True)) if runs else {}


def _cancel(seen: dict[RunFolder, View], refused: Refused) -> None:
    endings = []
    for run, view in seen.items():
        try:
            if not (view.state.certain and _end_remains(run)):
                endings.append(_asked(run, view))
        except TorusrunError as error:
            refused[run] = error
    for ending in endings:
        if ending.unsure:
            _end_unsure(ending, refused)
    sure = [ending for ending in endings if not ending.unsure]
    # Some schedulers end a job at once, without time for its processes to write a checkpoint.
    waits = [ending for ending in sure if ending.begun or ending.in_held]
    _end([ending for ending in sure if ending not in waits], refused)
    _end(_not_ended(waits), refused)
    _end([ending for ending in waits if ending.several and ending.over], refused={})  # later jobs would end at once
    for ending in endings:
        if ending.run in refused or (ending.begun and client.of(ending.site).scheduler.traits.one_machine):
            _end_unreached(ending.run, refused)


def _end_unreached(run: RunFolder, refused: Refused) -> None:
    """End the processes of a run that its scheduler could not end, if they are on this host; else its error stays."""
    try:
        if _end_remains(run):
            refused.pop(run, None)
    except TorusrunError as error:
        refused.setdefault(run, error)


def _end_remains(run: RunFolder) -> bool:
    """End what is at work for a run on this host; False if nothing is. Raises UserError if others are at work."""
    left = [run.attempt(number) for number in attempt_folders.attempts(run) if claim.held(run.attempt(number))]
    for attempt in left:
        if not claim.end_holders(attempt, read_plan(run, attempt.number).site.kill_after_s):
            raise UserError(f"{run.run_id} has processes that this host cannot end: {claim.holders(attempt)}; end them")
    return bool(left)


def _asked(run: RunFolder, seen: View) -> _Ending:
    """Ask an attempt to end. Raises UserError if it is over already, or if its job is unknown."""
    unsure = is_unsure(run, seen)
    if seen.state.over and not unsure:
        raise UserError(f"{run.run_id} is over already: {seen.state.value}, {seen.reason}")
    if seen.job is None:
        raise UserError(f"{run.run_id} has no known job to cancel: {seen.reason}")
    ledger.append(run.ledger, CancelRequested(seen.attempt))
    events = ledger.events(run.ledger)
    begun = ledger.last(events, Started, seen.attempt) is not None and not ledger.last(events, Ended, seen.attempt)
    in_held = bool(allocation.held_in(events, seen.attempt))  # its job continues with other attempts
    several = next_attempt.may_begin_another(events, seen.attempt)
    if several and ledger.last(events, Ended, seen.attempt):
        ledger.append(run.ledger, KeptGoing(seen.attempt, WAITED, cancelled=True))
    return _Ending(run, seen.attempt, seen.job, read_plan(run, seen.attempt).site, begun, in_held, several, unsure)


def is_unsure(run: RunFolder, seen: View) -> bool:
    """Whether the job of a LOST run may still run: that its scheduler does not list the job proves nothing.

    On one machine it does: the process has ended.
    """
    if seen.state is not State.LOST or not seen.job or run.attempt(seen.attempt).end.exists():
        return False
    in_held = allocation.held_in(ledger.events(run.ledger), seen.attempt)
    return not in_held and not client.of(read_plan(run, seen.attempt).site).scheduler.traits.one_machine


def _end_unsure(ending: _Ending, refused: Refused) -> None:
    """Have the scheduler end the jobs of a LOST attempt. An error counts only if the job is not over."""
    asks, every = client.of(ending.site), next_attempt.jobs_of(ledger.events(ending.run.ledger), ending.attempt)
    for job in reversed(every if ending.job in every else [ending.job]):
        try:
            asks.cancel(job)
        except SiteError as error:
            if not _is_over(job, asks):
                refused[ending.run] = error


def _is_over(job: str, asks: client.Client) -> bool:
    with suppress(SiteError):
        return asks.poll([job])[job].state.over
    return False


def _not_ended(endings: list[_Ending]) -> list[_Ending]:
    """The attempts that have not ended by themselves within their time."""
    until_s = monotonic() + max([ending.site.kill_after_s for ending in endings], default=0.0) + NOTICED_S
    while (left := [ending for ending in endings if not ending.over]) and monotonic() < until_s:
        sleep(LOOK_S)
    return left


def _end(endings: list[_Ending], refused: Refused) -> None:
    """Have keepers or schedulers end these attempts. Some schedulers end many jobs with a single command."""
    together: dict[tuple[str, object], list[_Ending]] = defaultdict(list)
    for ending in endings:
        many = not ending.in_held and client.of(ending.site).scheduler.traits.cancels_many
        together[(ending.site.scheduler, None if many else ending.run)].append(ending)
    for group in together.values():
        try:
            if group[0].in_held:
                in_hold.end(group[0].run, group[0].attempt)
            else:
                asks = client.of(group[0].site)
                asks.cancel(*(job for each in group for job in alive(each.run, each.attempt, each.job, asks)))
        except SiteError as error:
            refused.update(dict.fromkeys([ending.run for ending in group], error))


def alive(run: RunFolder, attempt: int, job: str, asks: client.Client) -> Sequence[str]:
    """The jobs of an attempt's submission to end with its `job`, the last first: each waits for the job before it."""
    every = next_attempt.jobs_of(ledger.events(run.ledger), attempt)
    if len(every) < 2 or job not in every:
        return [job]
    states = asks.poll(every)
    return [job_id for job_id in reversed(every) if not states[job_id].state.over]
