"""The end of a forward on the rank's host: `orchestrator.beside.forwarding.program ATTEMPT_FOLDER RANK PORT`.

It opens connections to the port on this host alone. It ends with its input, or with the attempt.
"""

from __future__ import annotations

import errno
import json
import signal
import socket
import sys
import time
from dataclasses import asdict
from pathlib import Path

from torusrun.orchestrator.base.errors import TorusrunError
from torusrun.orchestrator.base.process import STANDARD, Streams
from torusrun.orchestrator.beside.forwarding.carrying import MOST, Carried, Carrying
from torusrun.orchestrator.beside.forwarding.messages import Message, NotAForward, Ready
from torusrun.orchestrator.beside.shells.addresses import addresses, network
from torusrun.orchestrator.run.folder import claim
from torusrun.orchestrator.run.folder.run_folder import Attempt

GONE_LOOK_S = 30.0  # between looks for the ranks of an attempt without an end: it may have been killed


def main() -> None:
    folder, rank, port = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGTERM):  # the job's end and a user's Ctrl-C end it in order
        signal.signal(number, signal.SIG_IGN)
    try:
        Leading(STANDARD, Attempt(Path(folder)), int(rank), int(port)).carry()
    except TorusrunError as error:
        print(f"torusrun: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


class Leading(Carrying):
    """Leads to `port` of this host until the attempt ends."""

    def __init__(self, streams: Streams, attempt: Attempt, rank: int, port: int) -> None:
        super().__init__(streams)
        self.attempt, self.rank, self.port = attempt, rank, port
        self._gone_s, self._gone = time.monotonic() + GONE_LOOK_S, False
        own = [(socket.AF_INET, address) for address in addresses()]
        self.places = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"), *own]
        self.send(Message.READY, 0, json.dumps(asdict(Ready(socket.gethostname(), network()))).encode())

    def look(self) -> None:
        """End with the attempt."""
        self.over = self.over or self.attempt.end.exists() or self._killed()

    def _killed(self) -> bool:
        """Whether the ranks are gone for a while without a record of their end. Those of a held allocation change."""
        if time.monotonic() < self._gone_s or self.attempt.keeper.exists():
            return False
        self._gone_s = time.monotonic() + GONE_LOOK_S
        before, began = self._gone, self.attempt.rank_start(self.rank).exists()
        self._gone = began and claim.held(self.attempt) is False
        return before and self._gone

    def opened(self, number: int) -> None:
        if number in self.carried or len(self.carried) >= 2 * MOST:
            raise NotAForward("the user's side opened too many connections")
        carried = self.carried[number] = Carried(socket.socket(), opening=True, others=[*self.places])
        self._open(number, carried)

    def connected(self, number: int, carried: Carried) -> None:
        if _is_open(carried.link):
            carried.opening = False
            self._guarded(number, self._finish)
        else:
            self._open(number, carried)

    def _open(self, number: int, carried: Carried) -> None:
        """Begin to open the next address of this host."""
        while carried.others:
            family, address = carried.others.pop(0)
            carried.link.close()
            try:
                carried.link = socket.socket(family)
            except OSError:  # this host has no IPv6
                continue
            carried.link.setblocking(False)
            if carried.link.connect_ex((address, self.port)) in (0, errno.EINPROGRESS):
                return
        self.drop(number, f"nothing answers on port {self.port} of {socket.gethostname()}")


def _is_open(link: socket.socket) -> bool:
    """Whether a link could be opened. Without a listener, the kernel may have connected it to itself."""
    try:
        return not link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) and link.getpeername() != link.getsockname()
    except OSError:
        return False


if __name__ == "__main__":
    main()
