"""The end of an attempt whose training goes on with another number of nodes, in an attempt that its job submits."""

from __future__ import annotations

import socket

from orchestrator.base.errors import TorusrunError
from orchestrator.base.process import NoAnswer
from orchestrator.base.states import State
from orchestrator.runs.attempts import successor
from orchestrator.runs.folder.records import End
from orchestrator.runs.folder.run_folder import RunFolder
from orchestrator.runs.plan.phase_groups import stretch_at
from orchestrator.runs.plan.plan import Plan


def hand_over(run: RunFolder, number: int, plan: Plan) -> End:
    """Submit the next attempt of a training that is at the end of its stretch; how this one ended."""
    following = stretch_at(plan.run, plan.stretch[1]) if plan.stretch else None
    wanted = f"phase {following.first} wants {following.on_nodes}" if following else "the training wants other nodes"
    try:
        follower = successor.submit_next(run, number)
    except successor.Cancelled as error:
        return End(State.CANCELLED, str(error))
    except NoAnswer as error:
        why = f"{wanted}, and whether attempt {number + 1} was submitted is not known: {error}"
        return End(State.CANCELLED, why, followed_by=number + 1)
    except TorusrunError as error:
        to_do = f"`torusrun resume {run.run_id}` continues with {following.on_nodes if following else 'them'}"
        why = f"{wanted}, and {socket.gethostname()} could not submit the next attempt ({error})"
        return End(State.CANCELLED, f"{why}; {to_do}")
    return End(State.CANCELLED, f"{wanted}: attempt {follower} continues", followed_by=follower)
