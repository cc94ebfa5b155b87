"""A run followed to its end: the folder is looked at often, the scheduler ever more seldom."""

from __future__ import annotations

import time
from collections.abc import Iterator

from orchestrator.runs.folder import RunFolder
from orchestrator.states import State
from orchestrator.watch.poll import standing
from orchestrator.watch.view import View, read_record

LOOK_S = 0.5
FIRST_POLL_S = 1.0
SLOWEST_POLL_S = 30.0
RECORDS_LAG_S = 30.0  # a job leaves Grid Engine's and Slurm's queue seconds before their records know of its end


def follow(run: RunFolder) -> Iterator[View]:
    """Views of a run until it is over, the last one being its end, or until nobody can tell how it ended."""
    delay_s, next_poll_s = FIRST_POLL_S, 0.0
    ((record, status),) = standing([run], time.time())
    seen_s = time.monotonic()
    while True:
        yield record.view(status, time.time())
        if status.state is not State.LOST and not record.hopeless:
            seen_s = time.monotonic()
        if status.state.over and status.state is not State.LOST:
            return
        if time.monotonic() > seen_s + RECORDS_LAG_S:
            return
        time.sleep(LOOK_S)
        record = read_record(run)
        if record.settled or time.monotonic() >= next_poll_s:
            ((record, status),) = standing([run], time.time())
            delay_s = min(delay_s * 1.5, SLOWEST_POLL_S)
            next_poll_s = time.monotonic() + delay_s
