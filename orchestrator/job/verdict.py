"""How an attempt ended, from its ranks' ends: which rank was the cause and which only followed."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.job.rank import MISPLACED
from orchestrator.runs.records import End, RankEnd, signal_name
from orchestrator.states import State

STOPPED_AFTER_CHECKPOINT = 75
CHECKPOINT_LOST = 74  # every rank ends with it at once, and only rank 0, which writes checkpoints, can say why
FROM_OUTSIDE = (signal.SIGTERM, signal.SIGKILL)  # the scheduler may know who sent them: a limit, the memory's end
NOT_DONE = "the training did not record that it is done"


@dataclass(frozen=True)
class StopRequest:
    """Why the ranks were asked to stop before they were done."""

    state: State
    reason: str
    certain: bool


def cause(ends: Sequence[RankEnd]) -> RankEnd | None:
    """The rank that ended the attempt: one not told to; misplaced, then killed, then failed; of equals the first."""
    bad = [end for end in ends if not end.good and end.exit_code != STOPPED_AFTER_CHECKPOINT]
    return min(bad, key=_order, default=None)


def _order(end: RankEnd) -> tuple[bool, bool, bool, bool, float]:
    follows = end.exit_code == CHECKPOINT_LOST and end.rank != 0
    return end.told, not end.error, end.signal is None, follows, end.ended_s


def verdict(
    ranks: int,
    ends: Sequence[RankEnd],
    stop: StopRequest | None,
    launcher_code: int,
    said: str,
    at: str,
    *,
    done: bool = False,
) -> End:
    """The attempt's end.

    `launcher_code` is the launcher's exit code (negative: a signal), `said` the last line of the causing rank's log,
    `at` where the training stood, in words, `done` whether it recorded that it is done.
    """
    if len(ends) == ranks and all(end.good for end in ends):
        if done:
            return End(State.COMPLETED, f"all {ranks} ranks ended well")
        return End(State.FAILED, f"all {ranks} ranks ended with exit code 0, but {NOT_DONE}; see the ranks' logs")
    if stop:
        return End(stop.state, f"{stop.reason}{at}", stop.certain)
    culprit = cause(ends)
    if culprit is None and len(ends) == ranks:
        return End(State.CANCELLED, f"the ranks were told to stop from outside{at}", certain=False)
    if culprit:
        quoted = f": {said}" if said and culprit.signal is None and culprit.exit_code != MISPLACED else ""
        return End(State.FAILED, f"{culprit.words}{at}{quoted}", certain=culprit.signal not in FROM_OUTSIDE)
    missing = sorted(set(range(ranks)) - {end.rank for end in ends})
    how = signal_name(-launcher_code) if launcher_code < 0 else f"exit code {launcher_code}"
    listed = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
    return End(
        State.FAILED,
        f"the launcher ended ({how}){at}, and ranks {listed} left no record of theirs; see job.err",
        certain=False,
    )
