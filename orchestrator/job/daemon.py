"""The scheduler's daemon that started the job on this host. If it ends, some schedulers lose the other nodes."""

from __future__ import annotations

import os

from torusrun.orchestrator.base import proc
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.run.folder.end_words import ended
from torusrun.orchestrator.run.folder.how_ended import How
from torusrun.orchestrator.run.folder.records import End


class Daemon:
    """The process that started the session `leader` (by default our own), as found when this object is made."""

    def __init__(self, leader: int | None = None) -> None:
        self.leader = os.getsid(0) if leader is None else leader
        self.pid = proc.parent_of(self.leader)

    @property
    def gone(self) -> bool:
        """Whether the daemon has ended, though the session that it started has not."""
        return self.pid not in (None, 0, 1) and proc.parent_of(self.leader) not in (None, self.pid)

    def blamed(self, end: End, host: str) -> End:
        """`end`, or the end by the lost daemon of this `host` if the daemon is gone and no other cause is certain."""
        known = end.certain and end.state is not State.NODE_FAIL
        if known or end.state is State.COMPLETED or not self.gone:
            return end
        return ended(
            How.DAEMON_GONE, hosts=[host], step=end.step, certain=end.certain, again=end.again,
            host=host, before=end.reason,
        )  # fmt: skip
