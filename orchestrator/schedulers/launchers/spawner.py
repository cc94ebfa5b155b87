"""Starts N processes on this machine, with a rank each; if one ends badly, it ends the others.

`orchestrator.schedulers.launchers.spawner N COMMAND...`
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

from torusrun.orchestrator.base import process
from torusrun.orchestrator.schedulers.launchers.spawn import Spawn

POLL_S = 0.1


def main() -> int:
    count, command = int(sys.argv[1]), sys.argv[2:]
    ranks = [_start(command, rank) for rank in range(count)]

    def forward(number: int, frame: FrameType | None) -> None:
        _signal(ranks, signal.Signals(number))

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, forward)
    return _wait(ranks)


def _start(command: list[str], rank: int) -> subprocess.Popen[bytes]:
    numbers = dict.fromkeys(Spawn.numbers, str(rank))
    return process.start(command, environment={**os.environ, **numbers}, parent_death=signal.SIGTERM)


def _signal(ranks: list[subprocess.Popen[bytes]], number: signal.Signals) -> None:
    for rank in ranks:
        if rank.poll() is None:
            rank.send_signal(number)


def _wait(ranks: list[subprocess.Popen[bytes]]) -> int:
    worst = 0
    while None in (codes := [rank.poll() for rank in ranks]):
        if not worst and (bad := _bad(codes)):
            worst = bad[0][1]
            for rank, code in bad:
                _tell(rank, code)
            _signal(ranks, signal.SIGTERM)
        time.sleep(POLL_S)
    return worst or next((code for code in codes if code), 0)


def _bad(codes: Sequence[int | None]) -> list[tuple[int, int]]:
    """(rank, exit code) of the ranks that ended badly; first those that a signal ended, since they recorded nothing."""
    return sorted(((rank, code) for rank, code in enumerate(codes) if code), key=lambda bad: bad[1] > 0)


def _tell(rank: int, code: int) -> None:
    """Print the end of a rank, in the form that `Spawn.killed` reads."""
    how = f"exited on signal {-code}" if code < 0 else f"ended with exit code {code}"
    print(f"spawn noticed that process rank {rank} {how}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
