"""Reads from rank 0's log which network NCCL chose, and records it once in the run's ledger.

NCCL logs it when the first ranks meet, with NCCL_DEBUG=INFO, which the wrapper sets if the site has adapters.
"""

from __future__ import annotations

import contextlib
import re

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import NetworkChosen
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder

HEAD_BYTES = 256 * 1024  # more of the log is not read
CHOSEN = re.compile(r"NCCL INFO Using network ([^\r\n]{1,100})")  # since NCCL 2.5


def chosen(text: str) -> str | None:
    """The network that NCCL chose, as a log shows: IB, Socket or a plug-in's name; None if the log has none yet."""
    line = CHOSEN.search(text)
    return line[1].strip() if line else None


class NetworkWatch:
    """Reads the head of rank 0's log as it grows, until it names NCCL's network or the head is complete."""

    def __init__(self, run: RunFolder, attempt: Attempt, *, wanted: bool) -> None:
        self._run, self._attempt = run, attempt
        self._head = b""
        self._over = not wanted

    def look(self) -> None:
        """Read the text that is new since the last call; record the network in the ledger once it is known."""
        if self._over:
            return
        try:
            with open(private.open_regular(self._attempt.rank_log(0)), "rb") as log:
                log.seek(len(self._head))
                new = log.read(HEAD_BYTES - len(self._head))
        except OSError:
            return
        if not new:
            return
        self._head += new
        # The last line may be incomplete.
        if network := chosen(self._head.rpartition(b"\n")[0].decode(errors="replace")):
            with contextlib.suppress(SiteError):  # a full disk
                ledger.append(self._run.ledger, NetworkChosen(self._attempt.number, network))
        self._over = network is not None or len(self._head) >= HEAD_BYTES
