"""Ends an attempt whose training continues with another number of nodes: its job submits the next attempt."""

from __future__ import annotations

import socket

from orchestrator.base.errors import TorusrunError
from orchestrator.base.process import NoAnswer
from orchestrator.runs.attempts import successor
from orchestrator.runs.folder.end_words import ended
from orchestrator.runs.folder.how_ended import How
from orchestrator.runs.folder.records import End
from orchestrator.runs.folder.run_folder import RunFolder
from orchestrator.runs.plan.phase_groups import stretch_at
from orchestrator.runs.plan.plan import Plan
from orchestrator.runs.state.decide import Resume, Stop


def hand_over(run: RunFolder, number: int, plan: Plan) -> End:
    """Submit the next attempt of a training that has reached the end of its stretch; return the end of this attempt."""
    following = stretch_at(plan.run, plan.stretch[1]) if plan.stretch else None
    wanted = f"phase {following.first} wants {following.on_nodes}" if following else "the training wants other nodes"
    try:
        step = successor.submit_next(run, number)
    except NoAnswer as error:
        return ended(How.PERHAPS_HANDED_OVER, wanted=wanted, next=number + 1, why=error, followed_by=number + 1)
    except TorusrunError as error:
        step = Stop(str(error))
    if isinstance(step, Resume):
        return ended(How.HANDED_OVER, wanted=wanted, next=step.attempt, followed_by=step.attempt)
    if isinstance(step, Stop) and step.by_user:
        return ended(How.CANCELLED)
    to_do = f"`torusrun resume {run.run_id}` continues with {following.on_nodes if following else 'them'}"
    return ended(How.NOT_HANDED_OVER, wanted=wanted, host=socket.gethostname(), why=step.why, to_do=to_do)
