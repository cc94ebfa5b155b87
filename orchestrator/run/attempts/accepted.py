"""The knowledge of a client about a job that its scheduler has or may have accepted: never submit it again."""

from __future__ import annotations

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.process import NoAnswer
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import JobAdded, Submitted
from torusrun.orchestrator.run.folder.run_folder import RunFolder


def note(run: RunFolder, event: Submitted | JobAdded) -> None:
    """Write an accepted job into the ledger. Raises NoAnswer if that fails: a later look finds it by its name."""
    try:
        ledger.append(run.ledger, event)
    except SiteError as error:
        raise NoAnswer(f"the scheduler has accepted job {event.job}, which cannot be recorded: {error}") from None


def unsure(error: NoAnswer, name: str, called: str) -> NoAnswer:
    """The error with advice: the job of the run or sweep `name` may be in the queue, where it is `called` so."""
    known = f"`torusrun status {name}` finds it by its name {called!r}"
    return NoAnswer(f"{error}; a job may exist anyway: do not submit it again, {known}")
