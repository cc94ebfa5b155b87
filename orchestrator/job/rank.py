"""The wrapper of a rank: checks the rank's placement, starts the program, passes signals on, records the end.

`orchestrator.job.rank ATTEMPT_FOLDER`, started by srun, mpirun or spawn. It needs only the standard library,
costs a few milliseconds, and stays on the host when the program runs in a container. It holds the lock of its
attempt (run/folder/claim.py), and so does the program.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torusrun.orchestrator.base.errors import SITE_FAILED, CutOffError, ImageError, StoppedBeforeStart, TorusrunError
from torusrun.orchestrator.base.json_files import write_json
from torusrun.orchestrator.job.ranks.beginning import begin
from torusrun.orchestrator.job.ranks.meeting import meeting
from torusrun.orchestrator.job.ranks.rank_program import RankProgram
from torusrun.orchestrator.job.start.launch_order import LaunchOrder, Rank, check_shared, ordered
from torusrun.orchestrator.place.hosts.same_host import this_host
from torusrun.orchestrator.place.placement.binding import bind
from torusrun.orchestrator.place.placement.mapping import Placement, misplaced
from torusrun.orchestrator.run.folder import claim
from torusrun.orchestrator.run.folder.log_times import Recorder, index_of
from torusrun.orchestrator.run.folder.records import Meaning, RankEnd
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.training.files import job_memory
from torusrun.training.reporting.output import never_fail

if TYPE_CHECKING:
    from torusrun.orchestrator.job.load.monitor import Monitor
    from torusrun.orchestrator.job.ranks.each import Judge
    from torusrun.orchestrator.job.ranks.roles import Roles
    from torusrun.orchestrator.job.ranks.service import Service

MISPLACED = 64
UNSTARTED = {ImageError: Meaning.NO_IMAGE, CutOffError: Meaning.CUT_OFF}
AT_THE_END_S = 10.0  # that a main role which has ended its services itself may take to end
APART_S = 10.0  # between two starts of a program, so that a fault of some seconds does not use up its restarts
UNREADY = 69  # of a service that is not ready, or ended before the run (sysexits.h, EX_UNAVAILABLE)


def main() -> int:
    try:
        return _work(Attempt(Path(sys.argv[1])))
    except TorusrunError as error:  # a full disk, most likely: the launcher must see the failure all the same
        print(f"torusrun: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    except Exception as error:
        from torusrun.orchestrator.base.defect import report

        print(f"torusrun: {report(error, ['rank'])}", file=sys.stderr, flush=True)
        return SITE_FAILED


def _work(attempt: Attempt) -> int:
    """Check the placement of this rank, run its program and record its end; the exit code for the launcher."""
    # The query where a rank is must not kill a wrapper that copies an image. A handler is used, since the program would
    # inherit an ignored signal.
    signal.signal(signal.SIGUSR1, lambda number, frame: None)
    order, placement = ordered(attempt)
    os.umask(order.umask)  # not every launcher passes its own on
    number, local_rank = identity(order.numbers, os.environ)
    host = _host(order, placement, number)
    if wrong := misplaced(placement, number, host, local_rank):
        print(f"torusrun: {wrong}", file=sys.stderr, flush=True)
        end = RankEnd(number, host, local_rank, time.time(), error=wrong, meaning=Meaning.MISPLACED)
        end.write(attempt.rank_end(number))
        return MISPLACED
    cores = os.sched_getaffinity(0)
    rank = Rank(number, attempt, order, placement)
    bind(rank.cores(os.environ), local_rank)
    with contextlib.ExitStack() as held:
        return _ranked(rank, cores, held)


def _host(order: LaunchOrder, placement: Placement, number: int) -> str:
    """This host by its name in the placement, its own name if it is none of them."""
    expected = [slot.host for slot in placement.slots[max(number, 0) :][:1]]  # first, as it needs fewest look-ups
    return this_host([*expected, *placement.hosts], os.environ.get(order.host_variable, ""))


def _ranked(rank: Rank, cores: Collection[int], held: contextlib.ExitStack) -> int:
    """Run the program of `rank` and record its end; the exit code for the launcher."""
    attempt, slot = rank.attempt, rank.slot

    def record(**how: Any) -> None:
        end = RankEnd(rank.number, slot.host, rank.local_rank, time.time(), **how)
        replace(end, role=slot.role, role_rank=rank.in_role).write(attempt.rank_end(rank.number))

    killed = job_memory.kills()
    try:
        lock = claim.hold(attempt)
        check_shared(rank.order.gpus, os.environ)
        claim.check(attempt.run, attempt.number)
        if order := rank.order.stage:
            from torusrun.orchestrator.job.staging.of_rank import staged  # most runs stage nothing

            rank = replace(rank, staged=staged(order, rank.number, rank.placement, attempt, held))
        ran = _run(rank, lock, cores, held)
    except StoppedBeforeStart:
        record(exit_code=0, told=True, meaning=Meaning.LATER)
        return 0
    except TorusrunError as error:  # an image that cannot be staged or is not the run's, or a newer attempt
        meaning = next((UNSTARTED[kind] for kind in UNSTARTED if isinstance(error, kind)), Meaning.FAILED)
        record(error=str(error), meaning=meaning)
        raise
    if ran.failed:
        record(error=ran.failed, meaning=Meaning.NOT_READY)
        return UNREADY
    exit_code, by_signal = (ran.code, None) if ran.code >= 0 else (None, -ran.code)
    meaning, code = rank.role.program.meaning(ran.code), ran.code if ran.code >= 0 else 128 - ran.code
    if rank.role.service or rank.role.each:  # it has to live until a request to end, or until all is judged
        meaning = Meaning.FAILED if not ran.asked else Meaning.LATER if ran.left else Meaning.DONE
        code = 0 if ran.asked else code or UNREADY
    starved = code != 0 and job_memory.kills() > killed
    record(exit_code=exit_code, signal=by_signal, told=ran.asked, meaning=meaning, starved=starved)
    return code


def identity(numbers: Sequence[str], environment: Mapping[str, str]) -> tuple[int, int]:
    """(rank, local rank) from the variables `numbers` of the launcher. Raises SystemExit if either is missing."""
    if missing := [name for name in numbers if name not in environment]:
        raise SystemExit(f"torusrun: this process has no rank: its launcher did not set {' and '.join(missing)}")
    rank, local_rank = (int(environment[name]) for name in numbers)
    return rank, local_rank


class Ran(NamedTuple):
    """How the program of a rank ended."""

    code: int  # its exit code, negative for a signal
    asked: bool  # whether the rank had got a request to stop, or has judged every checkpoint
    failed: str  # why a service was ended, in words
    left: bool  # whether checkpoints may be left that it has to judge


def _run(rank: Rank, lock: int, cores: Collection[int], held: contextlib.ExitStack) -> Ran:
    """Run the program of this rank, again if it may restart, or once for each checkpoint.

    `cores` are the job's cores on this node. What the program needs stays until `held` is closed, which waits for the
    process that writes a checkpoint.
    """
    attempt = rank.attempt
    with open(attempt.rank_log(rank.number), "ab") as log, contextlib.ExitStack() as watched:
        times = Recorder(log.fileno(), index_of(attempt.rank_log(rank.number)))
        roles, service = _roles(rank, held)
        program = RankProgram(rank, times, service)
        judge = _judge(rank, program, log.fileno())
        again, monitored, code, asked = rank.role.restart, False, 0, True
        judgement = judge.next() if judge else None
        while judgement or not judge:
            with contextlib.ExitStack() as over:
                next_s = time.monotonic() + APART_S
                starting = replace(rank, judgement=judgement.variables) if judgement else rank
                child = begin(starting, lock, log, held, over if judgement else held, roles)
                _record_start(rank, child.pid, restarts=rank.role.restart - again)
                if rank.slot.local_rank == 0 and not monitored:
                    watched.enter_context(_monitor(rank, cores))
                    monitored = True
                code, asked = program.wait(child)
            if code == 0 and rank.role.service and not judge:
                asked = program.told_within(AT_THE_END_S)
            if asked or (service and service.failed):
                break
            if judge and code == 0:
                judge.judged()
                judgement = judge.next()
                asked = judgement is None
            elif again:
                again -= 1
                print(f"torusrun: it ended with {code}; it is started again", file=sys.stderr, flush=True)
                if service:
                    service.starts_again(APART_S)
                if asked := program.told_within(next_s - time.monotonic()):
                    break
            else:
                break
        return Ran(code, asked, service.failed if service else "", judge is not None and not judge.over)


def _judge(rank: Rank, program: RankProgram, log: int) -> Judge | None:
    """What chooses the checkpoints for a role that is started for each."""
    if not rank.role.each:
        return None
    from torusrun.orchestrator.job.ranks.each import Judge

    return Judge(rank, program, log)


def _record_start(rank: Rank, pid: int, restarts: int) -> None:
    """Record where the rank runs; its wrapper touches the record of the first rank of a host as a sign of life."""
    where = {"rank": rank.number, "host": rank.slot.host, "local_rank": rank.slot.local_rank}
    start = {**where, "pid": pid, "wrapper": os.getpid(), "started_s": time.time()}
    start |= {"restarts": restarts} if restarts else {}
    write_json(rank.attempt.rank_start(rank.number), start)


def _monitor(rank: Rank, cores: Collection[int]) -> contextlib.AbstractContextManager[Monitor]:
    """What the first rank of a host does besides: it removes old copies in memory, and records the host's load."""
    from torusrun.orchestrator.job.load.monitor import of_node
    from torusrun.training.checkpoint import node_memory

    node_memory.remove_overdue(time.time())
    return of_node(rank.attempt, rank.placement, rank.slot.host, cores)


def _roles(rank: Rank, held: contextlib.ExitStack) -> tuple[Roles | None, Service | None]:
    """The roles of a run that has several, once this rank's own may start, and the checks of this role."""
    if not rank.role.name:
        return None, None
    from torusrun.orchestrator.job.ranks.roles import Roles
    from torusrun.orchestrator.job.ranks.service import Service

    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
        signal.signal(number, lambda number, frame: asked.append(number))
    roles = Roles(rank, held)
    service = Service(rank, meeting(rank.attempt.role_place(rank.role.name)), rank.attempt.rank_log(rank.number))
    roles.wait(lambda: bool(asked) or service.told(time.monotonic()))
    return roles, service


if __name__ == "__main__":
    never_fail()
    sys.exit(main())
