"""The jobs of a submission: an accepted one is never submitted again, and further ones follow it in turn.

Jobs in turn are submitted one by one, each to begin after any end of the one before it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.process import NoAnswer
from torusrun.orchestrator.base.terminal.remarks import warn
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import JobAdded, NoMoreJobs, Submitted
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.attempt_plan import AttemptPlan
from torusrun.orchestrator.run.state import next_attempt
from torusrun.orchestrator.schedulers import client
from torusrun.orchestrator.schedulers.client import Client
from torusrun.orchestrator.schedulers.interface import Request
from torusrun.training.counted import counted


def accepted(run: RunFolder, event: Submitted | JobAdded) -> None:
    """Write an accepted job into the ledger. Raises NoAnswer if that fails: a later look finds it by its name."""
    try:
        ledger.append(run.ledger, event)
    except SiteError as error:
        raise NoAnswer(f"the scheduler has accepted job {event.job}, which cannot be recorded: {error}") from None


def unsure(error: NoAnswer, name: str, called: str) -> NoAnswer:
    """The error with advice: the job of the run or sweep `name` may be in the queue, where it is `called` so."""
    known = f"`torusrun status {name}` finds it by its name {called!r}"
    return NoAnswer(f"{error}; a job may exist anyway: do not submit it again, {known}")


def add(planned: AttemptPlan, run: RunFolder, asked: Request, before: str) -> None:
    """Submit the further jobs of an attempt's run, after the job `before`; `asked` is the request of that one.

    If the scheduler refuses one, the run has fewer jobs, which is printed. If it is unknown whether it took one, a
    later look at the run finds that job by its name.
    """
    plan, number, asks = planned.plan, planned.number, client.of(planned.plan.site)
    script = run.attempt(number).script
    for turn in range(1, plan.jobs):
        try:
            after = asks.in_turn(asked, f"{asked.called}.{turn}", before)
            before = asks.submit(script, after, cwd=script.parent)
            accepted(run, JobAdded(number, before))
        except NoAnswer as error:
            warn(f"{turn} of {counted(plan.jobs, 'job')} submitted, and perhaps one more: {error}")
            break
        except (SiteError, UserError) as error:
            warn(f"{turn} of {counted(plan.jobs, 'job')} submitted, and no more: {error}")
            with contextlib.suppress(SiteError):  # a full disk: a later look finds that there are no more
                ledger.append(run.ledger, NoMoreJobs(number, str(error)))
            break


def alive(run: RunFolder, attempt: int, job: str, asks: Client) -> Sequence[str]:
    """The jobs of the submission of an attempt to end together with its `job`, the last first: each waits for one."""
    every = next_attempt.jobs_of(ledger.events(run.ledger), attempt)
    if len(every) < 2 or job not in every:
        return [job]
    states = asks.poll(every)
    return [one for one in reversed(every) if not states[one].state.over]
