"""The end of a run that its user asks for, after a checkpoint if its ranks are at work."""

from __future__ import annotations

from time import monotonic, sleep

from orchestrator.attempts import held
from orchestrator.attempts.seen import Look, Seen
from orchestrator.errors import UserError
from orchestrator.plans.kept import read_plan
from orchestrator.runs import allocation, index, ledger
from orchestrator.runs.events import CancelRequested, Started
from orchestrator.runs.folder import Attempt, RunFolder
from orchestrator.schedulers import client

LOOK_S = 0.2
NOTICED_S = 10.0  # for the supervisor to hear of a cancellation through the file system, and the others of an end


def cancel(run: RunFolder, look: Look) -> None:
    """End the newest attempt. Raises UserError when it is over already, or when nobody knows its job."""
    index.own(run)
    seen = look(run)
    _cancel(run, seen)
    made = [number for number, stands in ledger.standing(ledger.events(run.ledger)).items() if stands]
    if max(made, default=0) > seen.attempt and not (follower := look(run)).state.over:
        _cancel(run, follower)  # the job of a training that wants other nodes submitted it meanwhile


def _cancel(run: RunFolder, seen: Seen) -> None:
    if seen.state.over:
        raise UserError(f"{run.run_id} is over already: {seen.state.value}, {seen.reason}")
    if seen.job is None:
        raise UserError(f"{run.run_id} has no known job to cancel: {seen.reason}")
    ledger.append(run.ledger, CancelRequested(seen.attempt))
    site = read_plan(run, seen.attempt).site
    begun = ledger.last(ledger.events(run.ledger), Started, seen.attempt)
    # Were its job ended at once, not every scheduler would leave its processes the time to write a checkpoint.
    in_held = bool(allocation.held_in(ledger.events(run.ledger), seen.attempt))  # its job goes on with other attempts
    wait = begun or in_held
    if wait and _ends_by_itself(run.attempt(seen.attempt), site.kill_after_s + NOTICED_S):
        return
    if in_held:
        held.end(run, seen.attempt)
    else:
        client.of(site).cancel(seen.job)


def _ends_by_itself(attempt: Attempt, within_s: float) -> bool:
    """Whether an attempt comes to its end in this time."""
    until_s = monotonic() + within_s
    while monotonic() < until_s:
        if attempt.end.exists():
            return True
        sleep(LOOK_S)
    return False
