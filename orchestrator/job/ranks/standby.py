"""A rank's program that has imported everything and waits until the next attempt gives it a place.

Its wrapper holds no lock and has no place until then. The word is SIGUSR1, which every launcher passes on; the file
`standby.json` of the attempt that runs now must name the next attempt, since schedulers send this signal, too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from typing import IO

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import read_object, required, write_json
from torusrun.orchestrator.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.job.ranks.beginning import started
from torusrun.orchestrator.job.start.launch_order import Rank, ordered
from torusrun.orchestrator.network.hosts.same_host import same_host
from torusrun.training import standby

LOOK_S = 5.0
WORD = signal.SIGUSR1
AWAITED = {WORD, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGUSR2}


class StandbyProgram:
    """The waiting program beside `rank`, which is at work: it takes the place on this host in the next attempt."""

    def __init__(self, rank: Rank, held: contextlib.ExitStack) -> None:
        self._rank, self._launcher = rank, os.getppid()
        self._start(rank.order.program.standby, None, held)

    def _start(self, command: Sequence[str], output: IO[bytes] | None, held: contextlib.ExitStack) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv = [*command, str(theirs.fileno())]
            self._child = started(self._rank, argv, [theirs.fileno()], output, held)
        held.callback(self._channel.close)  # first of all: a program that still waits then ends

    @property
    def lives(self) -> bool:
        """Whether the program has not ended."""
        return self._child.poll() is None

    def taken(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        """(the program, the socket to it), which belong to the caller from now on."""
        return self._child, self._channel

    def ready(self) -> None:
        """Wait until the program has imported everything. Raises SiteError if it ended."""
        if self._channel.recv(len(standby.READY)) != standby.READY:
            raise SiteError("the program that waited for the next attempt has ended")

    def placed(self) -> Rank | None:
        """Wait for the next attempt; this program's rank in it, or None if it has none or is not needed.

        Raises SiteError if the program ended, or the next attempt starts another one.
        """
        number, attempt = self._awaited(), self._rank.attempt
        if number is None:
            self._child.kill()
            return None
        following = RunFolder(attempt.folder.parents[1]).attempt(number)
        order, placement = ordered(following)
        for slot in placement.slots:
            if slot.local_rank == self._rank.slot.local_rank and same_host(slot.host, self._rank.slot.host):
                return Rank(slot.rank, following, order, placement)
        self._child.kill()
        return None

    def begin(self, rank: Rank, lock: int, log: IO[bytes], held: contextlib.ExitStack) -> subprocess.Popen[bytes]:
        """Have the waiting program begin as `rank`, as `beginning.begin` does."""
        self._give(rank, lock, log)
        self._channel.close()
        return self._child

    def _give(self, rank: Rank, lock: int, log: IO[bytes]) -> None:
        """Give the program the place of `rank`."""
        variables, arguments = rank.variables(None, os.environ), [rank.order.program.argv[-1]]
        try:
            socket.send_fds(self._channel, [standby.message(variables, arguments)], [log.fileno(), lock])
        except OSError as error:
            raise SiteError(f"the program that waited for this attempt has ended: {error.strerror}") from None

    def _awaited(self) -> int | None:
        """Record that this rank waits, and wait for the word: the number of the next attempt, None if it has to end.

        At work, it would end because other ranks are lost. So here it looks whether its launcher has died. The word may
        come as soon as the record is there, and the file that names the attempt may be seen here later than the word.
        """
        record, said = self._rank.attempt.rank_standby(self._rank.number), False
        before = signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
        try:
            write_json(record, {"pid": self._child.pid, "wrapper": os.getpid()})
            while self._child.poll() is None:
                found = signal.sigtimedwait(AWAITED, LOOK_S)
                if found is None and os.getppid() != self._launcher:
                    return None
                if found and found.si_signo not in (WORD, signal.SIGCHLD):
                    return None
                said = said or (found is not None and found.si_signo == WORD)
                if said and (number := _following(self._rank.attempt)):
                    return number
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise SiteError("the program that waited for the next attempt has ended")


def _following(attempt: Attempt) -> int | None:
    """The attempt that follows `attempt`, if its supervisor has given the word."""
    record = read_object(attempt.standby)
    return required(attempt.standby, record, "attempt", int) if record else None
