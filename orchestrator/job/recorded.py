"""Records the end of an attempt, whatever happens."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable

from orchestrator.base import defect
from orchestrator.base.errors import SiteError, TorusrunError, UserError
from orchestrator.base.states import State
from orchestrator.job.again import settled_end
from orchestrator.runs.folder import ledger
from orchestrator.runs.folder.end_words import ended
from orchestrator.runs.folder.events import Ended
from orchestrator.runs.folder.how_ended import How
from orchestrator.runs.folder.records import End, no_room, on_full_disk
from orchestrator.runs.folder.run_folder import Attempt, RunFolder


def recorded(run: RunFolder, attempt: Attempt, work: Callable[[], End]) -> End:
    """The end that `work` returns, or that of its failure, recorded for the attempt; an end that is settled stays."""
    if end := settled_end(run, attempt):
        print(f"torusrun: attempt {attempt.number} has ended, and its job was begun again: nothing is started")
        return end
    try:
        end = work()
    except TorusrunError as error:
        end = failed(error)
    except Exception as error:
        traceback.print_exc()
        end = ended(How.ERROR, why=defect.report(error, ["supervise"]))
    if end.state is State.FAILED and no_room(run.folder):
        end = on_full_disk(end)
    end.write(attempt.end)
    if end.certain:
        with contextlib.suppress(SiteError):  # a full disk; the record is there
            ledger.append(run.ledger, Ended.by(attempt.number, end))
    return end


def failed(error: TorusrunError) -> End:
    """The end of an attempt that failed with this error."""
    return ended(How.USER_ERROR if isinstance(error, UserError) else How.ERROR, why=error)
