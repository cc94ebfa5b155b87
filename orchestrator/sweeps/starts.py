"""The time of a member besides its training: its start and its stop, as measured in earlier runs of its user."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from itertools import islice
from statistics import median

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.run.folder import index, metrics
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.shown_plan import site_name
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.state import account
from torusrun.orchestrator.run.state.view import read_record

MOST_RUNS = 20
MOST_LOOKED_AT = 200  # runs of other sites and images cost time, too


@dataclass(frozen=True)
class Starts:
    """The median time of start and stop of the newest `runs` that show it."""

    each_s: float
    runs: int


def starts(plan: Plan) -> Starts | None:
    """The start and stop of completed trainings on the site of `plan`, all with an image, or all without one, as it is.

    None if none of the user's newest runs shows them.
    """
    known = reversed(index.runs()[-MOST_LOOKED_AT:])
    found = list(islice((s for run in known if (s := _beside_training_s(run, plan)) is not None), MOST_RUNS))
    return Starts(median(found), len(found)) if found else None


def _beside_training_s(run: RunFolder, plan: Plan) -> float | None:
    """What a run took beside its training; None if it does not show it, or is not like the run of `plan`."""
    with contextlib.suppress(SiteError):  # it cannot be read
        record = read_record(run)
        like = record.site == site_name(plan.run.site) and run.image.exists() == (plan.run.image is not None)
        if like and record.end and record.end.state is State.COMPLETED and record.attempt == 1:
            found = account.account(record.events, metrics.read(run.metrics), time.time(), State.COMPLETED)
            if found.seconds[account.COMPUTE] > 0:
                return found.seconds[account.START] + found.seconds[account.STOPPING]
    return None
