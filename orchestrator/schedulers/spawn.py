"""The launcher of one machine: it starts N processes with a rank each; if a process ends badly, it ends the others.

`orchestrator.schedulers.spawn N KILL_AFTER_S COMMAND...` is its command.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from torusrun.orchestrator.base import process
from torusrun.orchestrator.schedulers.launchers import Spawn
from torusrun.training.reporting.output import never_fail

POLL_S = 0.1
LATER_S = 10.0  # beyond the time of a rank for its program and for the writer of its checkpoint
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)


class Ranks:
    """The processes with a rank each. Those that do not end in time once they are asked to are killed."""

    def __init__(self, count: int, kill_after_s: float, command: Sequence[str]) -> None:
        self.longest_s = 2 * kill_after_s + LATER_S
        self.kill_s = float("inf")  # when those that are left are killed
        self.processes = [_start(command, rank) for rank in range(count)]
        for number in (*STOPS, signal.SIGUSR1):
            signal.signal(number, lambda number, frame: self.send(signal.Signals(number)))

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all processes; a stopped process continues if the signal is a request to end."""
        stops = (signal.SIGCONT,) if number in STOPS else ()
        if stops:
            self.kill_s = min(self.kill_s, time.monotonic() + self.longest_s)
        for rank in self.processes:
            for each in (number, *stops):
                if rank.poll() is None:
                    rank.send_signal(each)

    def wait(self) -> int:
        """Wait until all have ended; the exit code of the first that ended badly. Then the others are asked to end."""
        worst = 0
        while None in (codes := [rank.poll() for rank in self.processes]):
            if not worst and (bad := _bad(codes)):
                worst = bad[0][1]
                for rank, code in bad:
                    _tell(rank, code)
                self.send(signal.SIGTERM)
            if time.monotonic() > self.kill_s:
                self.send(signal.SIGKILL)
            time.sleep(POLL_S)
        return worst or next((code for code in codes if code), 0)


def main() -> int:
    return Ranks(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]).wait()


def _start(command: Sequence[str], rank: int) -> subprocess.Popen[bytes]:
    numbers = dict.fromkeys(Spawn.numbers, str(rank))
    return process.start(command, environment={**os.environ, **numbers}, parent_death=signal.SIGTERM)


def _bad(codes: Sequence[int | None]) -> list[tuple[int, int]]:
    """(rank, exit code) of the ranks that ended badly; first those that a signal ended, since they recorded nothing."""
    return sorted(((rank, code) for rank, code in enumerate(codes) if code), key=lambda bad: bad[1] > 0)


def _tell(rank: int, code: int) -> None:
    """Print the end of a rank, in the form that `Spawn.killed` reads."""
    how = f"exited on signal {-code}" if code < 0 else f"ended with exit code {code}"
    print(f"spawn noticed that process rank {rank} {how}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    never_fail()
    sys.exit(main())
