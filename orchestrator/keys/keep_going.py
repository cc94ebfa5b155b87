"""The keys of a run that continues without its user: over time limits, lost nodes and crashes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torusrun.orchestrator.keys.kinds import NODES, NONE_OR_MORE, Limits
from torusrun.training.recipe.key import key

MOST_JOBS = 1000
IN_VAIN = 2
JOBS = Limits(at_least=1, at_most=MOST_JOBS)


@dataclass(frozen=True)
class KeepGoing:
    """How a run continues after an attempt that ended early."""

    attempts: Annotated[int, JOBS] = key(
        1, "jobs that work for the run one after the other, from one submit; restarts within a job do not count"
    )
    without_progress: Annotated[int, JOBS] | None = key(
        None, "attempts in a row without a new checkpoint that end the run; default: 2"
    )
    spares: Annotated[int, NONE_OR_MORE] = key(
        0, "nodes to ask for beyond 'nodes': they replace lost nodes within the job"
    )
    min_nodes: Annotated[int, NODES] | None = key(
        None, "fewest nodes on which the run continues within a job; default: nodes"
    )

    @property
    def most_in_vain(self) -> int:
        """The attempts in a row without a new checkpoint that end the run."""
        return self.without_progress or IN_VAIN
