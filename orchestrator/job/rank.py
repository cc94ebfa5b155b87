"""The wrapper of a rank: checks the rank's placement, starts the program, passes signals on, records the end.

`orchestrator.job.rank ATTEMPT_FOLDER`, started by srun, mpirun or spawn. It needs only the standard library,
costs a few milliseconds, and stays on the host when the program runs in a container. It holds the lock of its
attempt (runs/folder/claim.py), and so does the program.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from orchestrator.base import process
from orchestrator.base.errors import SITE_FAILED, TorusrunError
from orchestrator.base.json_files import write_json
from orchestrator.job.rank_program import RankProgram
from orchestrator.network.placement.binding import bind
from orchestrator.network.placement.mapping import Placement, misplaced
from orchestrator.runs.folder import claim
from orchestrator.runs.folder.log_times import Recorder, index_of
from orchestrator.runs.folder.records import Meaning, RankEnd
from orchestrator.runs.folder.run_folder import Attempt, RunFolder
from orchestrator.runs.program.contract import master_environment, ranks_environment
from orchestrator.runs.program.what_runs import Program

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
    launch = json.loads(attempt.launch.read_text())
    os.umask(launch["umask"])  # not every launcher passes its own on
    rank, local_rank = identity(launch["numbers"], os.environ)
    host = socket.gethostname()
    placement = Placement.from_json(json.loads(attempt.placement.read_text()))
    if wrong := misplaced(placement, rank, host, local_rank):
        print(f"torusrun: {wrong}", file=sys.stderr, flush=True)
        end = RankEnd(rank, host, local_rank, time.time(), error=wrong, meaning=Meaning.MISPLACED)
        end.write(attempt.rank_end(rank))
        return MISPLACED
    cores = os.sched_getaffinity(0)
    bind(launch["beside"], local_rank)
    try:
        program = Program.from_json(launch["program"])
        lock = claim.hold(attempt)
        claim.check(RunFolder(attempt.folder.parents[1]), attempt.number)
        code, told = _run(program, launch, attempt, placement, rank, lock, cores)
    except TorusrunError as error:  # an image that cannot be staged or is not the run's, or a newer attempt
        of_image = launch["container"] and not isinstance(error, claim.Superseded)
        meaning = Meaning.NO_IMAGE if of_image else Meaning.FAILED
        RankEnd(rank, host, local_rank, time.time(), error=str(error), meaning=meaning).write(attempt.rank_end(rank))
        raise
    exit_code, number = (code, None) if code >= 0 else (None, -code)
    end = RankEnd(rank, host, local_rank, time.time(), exit_code, number, told=told, meaning=program.meaning(code))
    end.write(attempt.rank_end(rank))
    return code if code >= 0 else 128 - code


def identity(numbers: Sequence[str], environment: Mapping[str, str]) -> tuple[int, int]:
    """(rank, local rank) from the variables `numbers` of the launcher. Raises SystemExit if one is missing."""
    if missing := [name for name in numbers if name not in environment]:
        raise SystemExit(f"torusrun: this process was given no rank: its launcher did not set {' and '.join(missing)}")
    rank, local_rank = (int(environment[name]) for name in numbers)
    return rank, local_rank


def _run(
    program: Program,
    launch: dict[str, Any],
    attempt: Attempt,
    placement: Placement,
    rank: int,
    lock: int,
    cores: Collection[int],
) -> tuple[int, bool]:
    """Run the program of this rank: (its exit code, negative for a signal; whether it had been asked to stop).

    `cores` are the job's cores on this node.
    """
    with contextlib.ExitStack() as held:
        own = _environment(program, launch, attempt, placement, rank, held)
        command, environment = _command(program, launch["container"], own, attempt, rank, held)
        if not program.own_group:  # mpirun also sends these to the program, which they would kill
            for number in (signal.SIGUSR1, signal.SIGUSR2):
                signal.signal(number, signal.SIG_IGN)
        log = held.enter_context(open(attempt.rank_log(rank), "ab"))
        times = Recorder(log.fileno(), index_of(attempt.rank_log(rank)))
        child = process.start(
            command,
            environment=environment,
            output=log,
            cwd=Path(program.directory) if program.directory and not launch["container"] else None,
            keep=[lock, *_of_pmi(environment)],
            own_group=program.own_group,
            parent_death=signal.SIGKILL,
        )
        local_rank = placement.slots[rank].local_rank
        start = {
            "rank": rank,
            "host": socket.gethostname(),
            "local_rank": local_rank,
            "pid": child.pid,
            "wrapper": os.getpid(),
            "started_s": time.time(),
        }
        write_json(attempt.rank_start(rank), start)
        joined = bool(launch["container"] and launch["container"]["instance"])
        first = local_rank == 0
        if first:
            from orchestrator.job.load.monitor import of_node

            held.enter_context(of_node(attempt, launch, placement, cores))
        running = RankProgram(child, attempt, rank, program, launch["kill_after_s"], times, pulse=first, joined=joined)
        return running.wait()


def _environment(
    program: Program,
    launch: dict[str, Any],
    attempt: Attempt,
    placement: Placement,
    rank: int,
    held: contextlib.ExitStack,
) -> dict[str, str]:
    """The variables for this rank's program. Rank 0 first opens the meeting point, if the program has one."""
    if not program.rendezvous:
        return given(launch, placement, rank, attempt.number, inherited=os.environ)
    from orchestrator.job.meeting import meeting, open_meeting

    if rank == 0:
        held.enter_context(open_meeting(attempt, launch["interface"]))
    return given(launch, placement, rank, attempt.number, meeting(attempt), os.environ)


def given(
    launch: Mapping[str, Any],
    placement: Placement,
    rank: int,
    attempt: int,
    meets: tuple[str, int | str] | None = None,
    inherited: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """A rank program's variables beside those it inherits; `meets` is the address and port where its ranks meet."""
    slot = placement.slots[rank]
    here = sum(other.host == slot.host for other in placement.slots)
    return {
        **fabric(launch["hcas"], slot.local_rank, here),
        **told_network(launch["hcas"], launch["program"]["environment"], inherited),
        **launch["program"]["environment"],
        **ranks_environment(placement, rank, launch["run"], attempt),
        **(master_environment(placement, rank, *meets) if meets else {}),
    }


def fabric(hcas: Sequence[str], local_rank: int, ranks_here: int) -> dict[str, str]:
    """The variables that give UCX the adapter beside the rank, and NCCL all adapters, as it knows distances itself."""
    if not hcas:
        return {}
    beside = hcas[local_rank * len(hcas) // ranks_here]
    return {"NCCL_IB_HCA": f"={','.join(hcas)}", "UCX_NET_DEVICES": f"{beside}:1"}


def told_network(hcas: Sequence[str], *given: Mapping[str, str]) -> dict[str, str]:
    """The variables that make NCCL log which network it chose, unless one of `given` sets NCCL_DEBUG."""
    if not hcas or any("NCCL_DEBUG" in variables for variables in given):
        return {}
    return {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}


def _command(
    program: Program,
    container: dict[str, Any] | None,
    own: Mapping[str, str],
    attempt: Attempt,
    rank: int,
    held: contextlib.ExitStack,
) -> tuple[list[str], dict[str, str]]:
    """(command, environment) by which this rank starts its program, on the host or in its image."""
    inherited = {k: v for k, v in os.environ.items() if not (program.rendezvous and k.startswith(OF_TORCHRUN))}
    if not container:
        return list(program.argv), {**inherited, **own}
    from orchestrator.job.contained import contained

    return contained(container, list(program.argv), own, inherited, attempt, rank, held)


def _of_pmi(environment: Mapping[str, str]) -> list[int]:
    """The descriptor by which an MPICH program communicates with Hydra, which passed it to this wrapper."""
    number = environment.get("PMI_FD", "")
    return [int(number)] if number.isdigit() else []


if __name__ == "__main__":
    sys.exit(main())
