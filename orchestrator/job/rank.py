"""The wrapper of a rank: checks the rank's placement, starts the program, passes signals on, records the end.

`orchestrator.job.rank ATTEMPT_FOLDER`, started by srun, mpirun or spawn. It needs only the standard library,
costs a few milliseconds, and stays on the host when the program runs in a container. It holds the lock of its
attempt (runs/folder/claim.py), and so does the program.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.base import process
from orchestrator.base.errors import SITE_FAILED, TorusrunError
from orchestrator.base.json_files import write_json
from orchestrator.job.launch_order import Rank, ordered
from orchestrator.job.left_behind import LeftBehind
from orchestrator.job.rank_program import RankProgram
from orchestrator.network.placement.binding import bind
from orchestrator.network.placement.mapping import misplaced
from orchestrator.runs.folder import claim
from orchestrator.runs.folder.log_times import Recorder, index_of
from orchestrator.runs.folder.records import Meaning, RankEnd
from orchestrator.runs.folder.run_folder import Attempt, RunFolder

OF_TORCHRUN = ("TORCHELASTIC_", "PET_")  # if torchrun started torusrun itself: they would mislead the program
MISPLACED = 64


def main() -> int:
    try:
        return _stand_by(Attempt(Path(sys.argv[1])))
    except TorusrunError as error:  # a full disk, most likely: the launcher must see the failure all the same
        print(f"torusrun: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    except Exception as error:
        from orchestrator.base.defect import report

        print(f"torusrun: {report(error, ['rank'])}", file=sys.stderr, flush=True)
        return SITE_FAILED


def _stand_by(attempt: Attempt) -> int:
    """Check the placement of this rank, run its program and record its end; the exit code for the launcher."""
    # The query where a rank is must not kill a wrapper that copies an image. A handler is used, since the program would
    # inherit an ignored signal.
    signal.signal(signal.SIGUSR1, lambda number, frame: None)
    order, placement = ordered(attempt)
    os.umask(order.umask)  # not every launcher passes its own on
    number, local_rank = identity(order.numbers, os.environ)
    host = socket.gethostname()

    def record(**how: Any) -> None:
        RankEnd(number, host, local_rank, time.time(), **how).write(attempt.rank_end(number))

    if wrong := misplaced(placement, number, host, local_rank):
        print(f"torusrun: {wrong}", file=sys.stderr, flush=True)
        record(error=wrong, meaning=Meaning.MISPLACED)
        return MISPLACED
    cores = os.sched_getaffinity(0)
    bind(order.beside, local_rank)
    with contextlib.ExitStack() as held:
        try:
            lock = claim.hold(attempt)
            claim.check(RunFolder(attempt.folder.parents[1]), attempt.number)
            code, told = _run(Rank(number, attempt, order, placement), lock, cores, held)
        except TorusrunError as error:  # an image that cannot be staged or is not the run's, or a newer attempt
            of_image = order.container and not isinstance(error, claim.Superseded)
            record(error=str(error), meaning=Meaning.NO_IMAGE if of_image else Meaning.FAILED)
            raise
        exit_code, by_signal = (code, None) if code >= 0 else (None, -code)
        record(exit_code=exit_code, signal=by_signal, told=told, meaning=order.program.meaning(code))
    return code if code >= 0 else 128 - code


def identity(numbers: Sequence[str], environment: Mapping[str, str]) -> tuple[int, int]:
    """(rank, local rank) from the variables `numbers` of the launcher. Raises SystemExit if one is missing."""
    if missing := [name for name in numbers if name not in environment]:
        raise SystemExit(f"torusrun: this process was given no rank: its launcher did not set {' and '.join(missing)}")
    rank, local_rank = (int(environment[name]) for name in numbers)
    return rank, local_rank


def _run(rank: Rank, lock: int, cores: Collection[int], held: contextlib.ExitStack) -> tuple[int, bool]:
    """Run the program of this rank: (its exit code, negative for a signal; whether it had been asked to stop).

    `cores` are the job's cores on this node. What the program needs stays until `held` is closed, which waits for the
    process that our own training may leave behind.
    """
    attempt, order, program = rank.attempt, rank.order, rank.order.program
    command, environment = _command(rank, held)
    left = LeftBehind()
    if not program.own_group:  # mpirun also sends these to the program, which they would kill
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
    with open(attempt.rank_log(rank.number), "ab") as log, contextlib.ExitStack() as watched:
        times = Recorder(log.fileno(), index_of(attempt.rank_log(rank.number)))
        child = process.start(
            command,
            environment=environment,
            output=log,
            cwd=Path(program.directory) if program.directory and not order.container else None,
            keep=[lock, *([] if program.own_group else [left.kept]), *_of_pmi(environment)],
            own_group=program.own_group,
            parent_death=signal.SIGKILL,
        )
        left.begun()
        held.callback(left.wait, order.kill_after_s)
        start = {
            "rank": rank.number,
            "host": socket.gethostname(),
            "local_rank": rank.slot.local_rank,
            "pid": child.pid,
            "wrapper": os.getpid(),
            "started_s": time.time(),
        }
        write_json(attempt.rank_start(rank.number), start)
        if rank.slot.local_rank == 0:
            from orchestrator.job.load.monitor import of_node

            watched.enter_context(of_node(attempt, order, rank.placement, cores))
        return RankProgram(child, rank, times).wait()


def _command(rank: Rank, held: contextlib.ExitStack) -> tuple[list[str], dict[str, str]]:
    """(command, environment) by which this rank starts its program, on the host or in its image.

    Rank 0 first opens the meeting point, if the program has one.
    """
    program, meets, inherited = rank.order.program, None, dict(os.environ)
    if program.rendezvous:
        from orchestrator.job.meeting import meeting, open_meeting

        if rank.number == 0:
            held.enter_context(open_meeting(rank.attempt, rank.order.interface))
        meets = meeting(rank.attempt)
        inherited = {name: value for name, value in inherited.items() if not name.startswith(OF_TORCHRUN)}
    own = rank.variables(meets, os.environ)
    if not rank.order.container:
        return list(program.argv), {**inherited, **own}
    from orchestrator.job.contained import contained

    return contained(rank.order.container, program.argv, own, inherited, rank.attempt, rank.number, held)


def _of_pmi(environment: Mapping[str, str]) -> list[int]:
    """The descriptor by which an MPICH program communicates with Hydra, which passed it to this wrapper."""
    number = environment.get("PMI_FD", "")
    return [int(number)] if number.isdigit() else []


if __name__ == "__main__":
    sys.exit(main())
