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
SAID = re.compile(r"NCCL INFO Using network ([^\r\n]{1,100})")
# Versions before 2.5 log only the devices they found, and always the sockets of their first contact.
ADAPTERS = re.compile(r"NCCL INFO NET/IB : Using \[")
NO_ADAPTERS = re.compile(r"NCCL WARN Failed to open libibverbs|NCCL INFO NET/IB : No device found")
SOCKETS = re.compile(r"NCCL INFO NET/Socket : Using \[")


def chosen(text: str) -> str | None:
    """The network that NCCL chose, as a log shows: IB, Socket or a plug-in's name; None if the log has none yet."""
    if said := SAID.search(text):
        return said[1].strip()
    if ADAPTERS.search(text):
        return "IB"
    if (without := NO_ADAPTERS.search(text)) and SOCKETS.search(text, without.end()):
        return "Socket"
    return None


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
