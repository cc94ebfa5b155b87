"""The wrapper of a rank: proves the rank's place, starts the training, passes signals on, records the end.

`orchestrator.job.rank ATTEMPT_FOLDER`, started by srun, mpirun or spawn. It needs nothing but the standard
library, costs a few milliseconds, and stays on the host when the training runs in a container. It holds the lock of its
attempt (runs/claim.py), and so does the training.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from orchestrator import process
from orchestrator.errors import SITE_FAILED, TorusrunError
from orchestrator.placement.mapping import Placement, misplaced
from orchestrator.runs import claim
from orchestrator.runs.files import write_json
from orchestrator.runs.folder import Attempt, RunFolder
from orchestrator.runs.records import RankEnd

# Whoever starts the ranks says which is which, each in its own words.
NUMBERED_BY = (
    ("TORUSRUN_RANK", "TORUSRUN_LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_LOCALID"),
)
MISPLACED = 64
POLL_S = 0.2
HOST_PULSE_S = 10.0  # one rank of each host shows that often that the host lives


def main() -> int:
    try:
        return _stand_by(Attempt(Path(sys.argv[1])))
    except TorusrunError as error:  # a full disk, most likely: the launcher must hear of it all the same
        print(f"torusrun: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    except Exception as error:
        from orchestrator.defect import report

        print(f"torusrun: {report(error, ['rank'])}", file=sys.stderr, flush=True)
        return SITE_FAILED


def _stand_by(attempt: Attempt) -> int:
    """Prove the place of this rank, run its training and record its end; the exit code for the launcher."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # "where are you?": not to be died of while an image is copied
    rank, local_rank = identity(os.environ)
    host = socket.gethostname()
    placement = Placement.from_json(json.loads(attempt.placement.read_text()))
    if wrong := misplaced(placement, rank, host, local_rank):
        print(f"torusrun: {wrong}", file=sys.stderr, flush=True)
        RankEnd(rank, host, local_rank, time.time(), error=wrong).write(attempt.rank_end(rank))
        return MISPLACED
    launch = json.loads(attempt.launch.read_text())
    try:
        lock = claim.hold(attempt)
        claim.check(RunFolder(attempt.folder.parents[1]), attempt.number)
        code, told = _run(launch, attempt, placement, rank, local_rank, lock)
    except TorusrunError as error:  # an image that cannot be staged, or is not the run's; a newer attempt
        RankEnd(rank, host, local_rank, time.time(), error=str(error)).write(attempt.rank_end(rank))
        raise
    exit_code, number = (code, None) if code >= 0 else (None, -code)
    RankEnd(rank, host, local_rank, time.time(), exit_code, number, told=told).write(attempt.rank_end(rank))
    return code if code >= 0 else 128 - code


def identity(environment: Mapping[str, str]) -> tuple[int, int]:
    """(rank, local rank) as the launcher numbered them. Raises SystemExit when none did."""
    for rank, local_rank in NUMBERED_BY:
        if rank in environment:
            return int(environment[rank]), int(environment[local_rank])
    raise SystemExit("torusrun: this process was given no rank: none of " + ", ".join(r for r, _ in NUMBERED_BY))


def _run(
    launch: dict[str, Any], attempt: Attempt, placement: Placement, rank: int, local_rank: int, lock: int
) -> tuple[int, bool]:
    """Run the training of this rank to its end: (its exit code, negative for a signal; whether it was told to end)."""
    here = sum(seat.host == placement.seats[rank].host for seat in placement.seats)
    numbers = {"RANK": str(rank), "LOCAL_RANK": str(local_rank), "WORLD_SIZE": str(placement.grid.ranks)}
    launch["environment"] = {**fabric(launch["hcas"], local_rank, here), **launch["environment"]}
    command, environment = _command(launch, numbers, attempt, rank)
    for number in (signal.SIGUSR1, signal.SIGUSR2):  # mpirun sends them to the training too, which they would kill
        signal.signal(number, signal.SIG_IGN)
    with open(attempt.rank_log(rank), "ab") as log:
        child = process.start(command, environment=environment, output=log, keep=[lock], parent_death=signal.SIGKILL)
    start = {
        "rank": rank,
        "host": socket.gethostname(),
        "local_rank": local_rank,
        "pid": child.pid,
        "wrapper": os.getpid(),
        "started_s": time.time(),
    }
    write_json(attempt.rank_start(rank), start)
    return Wrapper(child, attempt, rank, launch["kill_after_s"], pulse=local_rank == 0).wait()


def fabric(hcas: Sequence[str], local_rank: int, ranks_here: int) -> dict[str, str]:
    """The variables that give a rank the adapter beside it: UCX that one, NCCL all, as it knows distances itself."""
    if not hcas:
        return {}
    beside = hcas[local_rank * len(hcas) // ranks_here]
    return {"NCCL_IB_HCA": f"={','.join(hcas)}", "UCX_NET_DEVICES": f"{beside}:1"}


def _command(
    launch: dict[str, Any], numbers: dict[str, str], attempt: Attempt, rank: int
) -> tuple[list[str], dict[str, str]]:
    """What this rank starts, on the host or in its image, and the environment it starts it in."""
    given = {**launch["environment"], **numbers}
    if not launch["container"]:
        return launch["command"], {**os.environ, **given}
    from orchestrator.job.contained import contained

    return contained(launch["container"], launch["command"], given, os.environ, attempt, rank)


class Wrapper:
    """The training of a rank from its start to its end, and what the wrapper is asked meanwhile."""

    def __init__(
        self, child: subprocess.Popen[bytes], attempt: Attempt, rank: int, kill_after_s: float, *, pulse: bool
    ) -> None:
        self.child, self.attempt, self.rank, self.kill_after_s = child, attempt, rank, kill_after_s
        self.pulse_s = time.monotonic() if pulse else float("inf")
        self.told_s: float | None = None
        self.asked_where = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
            signal.signal(number, self._ask_to_stop)
        signal.signal(signal.SIGUSR1, self._ask_where)

    def wait(self) -> tuple[int, bool]:
        """(the exit code, negative for a signal; whether the training was told to end before)."""
        noted = False
        while True:
            try:
                return self.child.wait(timeout=POLL_S), self.told_s is not None
            except subprocess.TimeoutExpired:
                if self.told_s and not noted:
                    noted = True
                    self._note(self.attempt.rank_told(self.rank))
                if self.told_s and time.monotonic() - self.told_s > self.kill_after_s:
                    self.child.kill()
                if time.monotonic() > self.pulse_s + HOST_PULSE_S:
                    self.pulse_s = time.monotonic()
                    with contextlib.suppress(OSError):  # the time of the record says that this host lives
                        os.utime(self.attempt.rank_start(self.rank))
                if self.asked_where:
                    self.asked_where = False
                    self._note(self.attempt.rank_seen(self.rank), process=process.state_of(self.child.pid))

    def _ask_to_stop(self, number: int, frame: FrameType | None) -> None:
        """Any request to end reaches the training once, as SIGTERM: it stops after a checkpoint."""
        if self.told_s is None:
            self.child.send_signal(signal.SIGTERM)
            self.child.send_signal(signal.SIGCONT)  # one that is stopped would hear nothing, and show no stack
            self.told_s = time.monotonic()

    def _ask_where(self, number: int, frame: FrameType | None) -> None:
        """The supervisor asks where the ranks are: the training writes its stack to its log, if it knows how."""
        self.child.send_signal(signal.SIGUSR1)
        self.asked_where = True

    def _note(self, path: Path, **values: Any) -> None:
        """Something that the supervisor may want to know; that the disk is full, it knows already."""
        with contextlib.suppress(TorusrunError):
            write_json(path, {"t": time.time(), **values})


if __name__ == "__main__":
    sys.exit(main())
