"""Waits for the ranks of earlier attempts: two must not train at once."""

from __future__ import annotations

import time
from collections.abc import Callable

from torusrun.orchestrator.run.folder import claim, holders
from torusrun.orchestrator.run.folder.end_words import ended
from torusrun.orchestrator.run.folder.how_ended import How
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder

POLL_S = 0.25
EARLIER_S = 60.0  # how long an earlier attempt may take to end, in addition to kill_after of its ranks


def wait_for_earlier(run: RunFolder, number: int, kill_after_s: float, asked: Callable[[], End | None]) -> End | None:
    """Wait until no rank of an earlier attempt runs: each ends once it sees this attempt. None if all have ended.

    The same holds for ranks of an earlier start of this attempt, if the scheduler started its job again. On this host,
    a process that was stopped continues, and one that does not end in time is killed. `asked` returns the end of this
    attempt if it has to stop.
    """
    until_s = time.monotonic() + kill_after_s + EARLIER_S
    for earlier in map(run.attempt, range(1, number + 1)):
        if claim.held(earlier):
            holders.wake(earlier)
        while claim.held(earlier):
            if stop := asked():
                return stop
            if time.monotonic() > until_s and not holders.end(earlier, grace_s=0.0):
                who = holders.named(earlier)
                return ended(How.STILL_AT_WORK, earlier=earlier.number, path=earlier.alive, who=who)
            time.sleep(POLL_S)
    return None
