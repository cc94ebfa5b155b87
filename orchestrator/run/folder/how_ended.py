"""The ways in which an attempt can end, each with a cause and a sentence, and the end that is made of a way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.signals import signal_name
from torusrun.orchestrator.base.states import Cause
from torusrun.orchestrator.run.folder.records import End, RankEnd
from torusrun.training.counted import all_of, first_of

if TYPE_CHECKING:  # `status` needs no placement
    from torusrun.orchestrator.place.placement.mapping import Placement

MOST_IN_WORDS = 8
MOST_KEPT = 64  # hosts and ranks in a record
IDLE = "no progress for {idle_s:.0f} s{at}"
HUNG = f"{IDLE} (limit: {{limit_s:.0f}} s{{doing}}): "
NEAR = " is near"
ADDITIONS = {  # to a sentence, if the evidence has such a value
    "said": ": {}",
    "supervisor": "; its supervisor was on {}",
    "doing": " for {}",
    "first_at": ", the first at {}",
    "stacks": "; stacks are in the logs of {}",
}
WAITS_FOR_DISK = "it waits for a disk or a file system"  # a rank's process in a hang


class How(Enum):
    """A way to end: its cause and its sentence.

    The sentence names all ranks {all}, the ranks concerned {who} or {first}, the hosts concerned {places}, the end of
    a rank's process {rank}, the last step {at}, the last line of a rank or of the launcher {said}, and the first rank
    that noticed the end {witness}. Its other fields are evidence.
    """

    ALL_WELL = Cause.DONE, "{all} ended well"
    DONE_BEFORE = Cause.DONE, "the training recorded that it is done; {rest}"
    GIVEN_BACK = Cause.DONE, "given back: {why}; {attempts} ran in it"

    CANCELLED = Cause.STOPPED, "cancelled by its user{at}"
    CANCELLED_BEFORE = Cause.STOPPED, "cancelled by its user before it began"
    SIGNALLED = Cause.STOPPED, "received {signal} from outside{at}"
    RANKS_SIGNALLED = Cause.STOPPED, "the ranks received a request to stop from outside{at}"
    SUPERSEDED = Cause.STOPPED, "{why}{at}"
    LATER = Cause.STOPPED, "{rank}{at}; `torusrun resume` continues the run"
    KILLED_IN_HOLD = Cause.STOPPED, "it did not end in time and was killed"
    HOLD_ENDED = Cause.STOPPED, "the held allocation {allocation} ended before this attempt began"
    NOT_BEGUN_IN_HOLD = Cause.STOPPED, "{allocation} was given back before this attempt began: {why}"

    TIME_NEAR = Cause.TIME_LIMIT, f"its time limit of {{limit_s:g}} s{NEAR}{{at}}"
    HOLD_NEAR = Cause.TIME_LIMIT, f"the end of its held allocation{NEAR}{{at}}"
    TIME_OVER = Cause.TIME_LIMIT, "{limit} was reached{at}: {who} ignored the request to stop, and had to be killed"

    HOST_LOST = Cause.HOST_LOST, "lost {places}{at}{said}{witness}"
    HOST_NO_RECORD = Cause.HOST_LOST, "{places} stopped responding{at}: no rank there left a record of its end{witness}"
    HOST_NO_ANSWER = Cause.HOST_LOST, f"{IDLE}: {{host}} does not answer, nor do its {{ranks}}{{stacks}}"
    HOST_SILENT = (
        Cause.HOST_LOST,
        "{places} silent for {silent_s:.0f} s, and no step came{at}: the host is gone, or its link is cut",
    )
    FIRST_HOST_SILENT = (
        Cause.HOST_LOST,
        "{silent}, the first host of its job, is silent for {silent_s:.0f} s and not reached: it is gone, or cut off",
    )
    FIRST_HOST_DOWN = (
        Cause.HOST_LOST,
        "lost {host}, the first host of its job, which the scheduler began again without it ({why})",
    )
    DAEMON_GONE = Cause.HOST_LOST, "the scheduler's daemon on {host} ended while the job was running; {before}"

    BAD_HOST = Cause.BAD_HOST, "the preflight blames {why}"

    KILLED = Cause.KILLED, "{rank}{at}{said}"
    WRAPPER_KILLED = Cause.KILLED, "the wrapper of {who} was killed by {signal}{at}"
    SUPERVISOR_KILLED = (
        Cause.KILLED,
        "the supervisor of the attempt was killed by {signal} before it recorded an end{supervisor}; see job.err",
    )
    NO_RECORD = Cause.KILLED, "{who} left no record of an end{at}: killed, most likely; see job.err"

    FAILED = Cause.PROGRAM, "{rank}{at}{said}"
    LEFT_EARLY = Cause.PROGRAM, "{rank}{at} while others were at work, which then lost it{said}"
    NOT_DONE = (
        Cause.PROGRAM,
        "{all} ended with exit code 0, but the training did not record that it is done; see the ranks' logs",
    )
    OUT_OF_MEMORY = Cause.OUT_OF_MEMORY, "{rank}{at}: the memory that its job has on the node was full"
    OUT_OF_DEVICE_MEMORY = Cause.OUT_OF_DEVICE_MEMORY, "{rank}{at}{said}"
    BAD_CONFIGURATION = Cause.CONFIGURATION, "{rank}{at}{said}"
    UNSAVED = Cause.DISK, "{who} could not write its last files{at}{said}"

    RANK_STANDS = Cause.HANG, f"{HUNG}{{first}}: {{process}}{{stacks}}"
    RANK_APART = Cause.HANG, f"{HUNG}{{first}} is not where the others wait for it: at {{frame}}{{stacks}}"
    WRAPPER_SILENT = Cause.HANG, f"{HUNG}the wrapper of {{first}} does not answer{{stacks}}"
    NO_WRAPPER = Cause.HANG, f"{HUNG}no wrapper of a rank answers{{stacks}}"
    ALL_WAIT = Cause.HANG, f"{HUNG}all ranks are at work or wait for one another{{first_at}}{{stacks}}"

    CUT_OFF = Cause.CONNECTION, "{rank}{at}, and no rank says why{said}"

    MISPLACED = Cause.LAUNCHER, "{rank}{at}"
    LAUNCHER_KILLED = Cause.LAUNCHER, "the launcher of the ranks was killed by {signal}{at}"
    LAUNCHER_FAILED = (
        Cause.LAUNCHER,
        "the launcher ended with exit code {exit_code}, and no rank left a record{at}{said}",
    )
    LAUNCHER_ERROR = Cause.LAUNCHER, "{why}"

    DROPPED = Cause.SCHEDULER, "dropped by its dependency, it never ran: {awaited} is {state}"
    USER_ERROR = Cause.CONFIGURATION, "{why}"
    NO_IMAGE = Cause.IMAGE, "{rank}{at}"
    IMAGE_ERROR = Cause.IMAGE, "{why}"
    STEP_FAILED = (
        Cause.CONFIGURATION,
        "{what} ended with exit code {exit_code} on {host}, before the ranks were started; see jobs.err",
    )
    SUPERVISOR_ENDED = (
        Cause.UNKNOWN,
        "the supervisor of the attempt ended with exit code {exit_code} before it recorded an end; see job.err",
    )
    NOT_STARTED = Cause.UNKNOWN, "{rank}{at}"
    NO_END = Cause.UNKNOWN, "its job ended, or began again, without a record of the attempt's end{supervisor}"
    JOB_SILENT = (
        Cause.UNKNOWN,
        "the job's process on {silent} is silent for {silent_s:.0f} s, and the host is not: it was stopped or killed",
    )
    JOB_KILLED = Cause.UNKNOWN, "a process of its job above the ranks was killed, and they were stopped{at}"
    STILL_AT_WORK = (
        Cause.UNKNOWN,
        "attempt {earlier} is still at work: {who}; end it, or if its host is gone for good remove {path}, and resume",
    )
    ERROR = Cause.UNKNOWN, "{why}"
    DEFECT = Cause.INTERNAL, "{why}"

    def __init__(self, cause: Cause, sentence: str) -> None:
        self.cause, self.sentence = cause, sentence


def ended(
    how: How,
    placement: Placement | None = None,
    *,
    by: RankEnd | None = None,
    ranks: Sequence[int] = (),
    hosts: Sequence[str] = (),
    step: int | None = None,
    certain: bool = True,
    again: bool = True,
    **evidence: object,
) -> End:
    """The end of an attempt whose ranks are in `placement`.

    It concerns `ranks`, or all ranks on `hosts`. `by` is the end of the rank that caused it. `evidence` holds the other
    words of the sentence. For the other arguments see `End`.
    """
    if by:
        killed = None if by.signal is None else signal_name(by.signal)
        ranks = (by.rank,)
        evidence = {"exit_code": by.exit_code, "signal": killed, "error": by.error, **evidence}
    if placement:
        ranks = ranks or [slot.rank for slot in placement.slots if slot.host in hosts]
        hosts = hosts or list(dict.fromkeys(placement.slots[rank].host for rank in ranks))
    evidence = {name: value for name, value in evidence.items() if value not in ("", None)}
    parts = {**evidence, **_named(placement, ranks, hosts), **_quoted(placement, evidence), "at": after(step)}
    words = how.sentence.format_map(defaultdict(str, parts, rank=by.words if by else ""))
    kept = {name: str(value) for name, value in evidence.items()}
    return End(
        how.cause.state, words, certain, again, cause=how.cause,
        hosts=tuple(hosts[:MOST_KEPT]), ranks=tuple(ranks[:MOST_KEPT]), step=step, evidence=kept,
    )  # fmt: skip


def later(end: End, step: int | None) -> End:
    """The end of an attempt that was asked to stop, with its last step added."""
    return replace(end, step=step, reason=f"{end.reason}{after(step)}")


def after(step: int | None) -> str:
    """' after step 57', or '' before the first step."""
    return "" if step is None else f" after step {step}"


def listed(ranks: Collection[int]) -> str:
    """'rank 3' or 'ranks 4, 5, 6', at most eight of them."""
    more = ", ..." if len(ranks) > MOST_IN_WORDS else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, list(ranks)[:MOST_IN_WORDS]))}{more}"


def name(placement: Placement, rank: int) -> str:
    """'rank 3 (node2, local rank 1)'; in a run with roles 'rollout rank 0 (node2, local rank 0)', as in its role."""
    slot = placement.slots[rank]
    before = sum(peer.host == slot.host and peer.rank < rank for peer in placement.of_role(slot.role))
    local_rank = before if slot.role else slot.local_rank
    return f"{_in_role(placement, rank)} ({slot.host}, local rank {local_rank})"


def _in_role(placement: Placement, rank: int) -> str:
    """'rank 3', or 'rollout rank 0'."""
    role = placement.slots[rank].role
    return f"{role} rank {rank - placement.of_role(role)[0].rank}" if role else f"rank {rank}"


def _listed(placement: Placement, ranks: Sequence[int]) -> str:
    """As `listed`; in a run with roles each rank has its role's name."""
    if not any(placement.slots[rank].role for rank in ranks):
        return listed(ranks)
    return first_of([_in_role(placement, rank) for rank in ranks], MOST_IN_WORDS)


def _named(placement: Placement | None, ranks: Sequence[int], hosts: Sequence[str]) -> dict[str, str]:
    """The ranks and hosts, in the words of the sentences."""
    if not placement:
        return {}
    ranks_on = {host: [slot.rank for slot in placement.slots if slot.host == host] for host in hosts}
    first = name(placement, ranks[0]) if ranks else ""
    return {
        "all": all_of(placement.grid.ranks, "rank"),
        "who": first if len(ranks) == 1 else _listed(placement, ranks),
        "first": f"{first} and {len(ranks) - 1} more" if len(ranks) > 1 else first,
        "ranks": _listed(placement, ranks),
        "host": hosts[0] if hosts else "",
        "places": first_of([f"{host} ({_listed(placement, on)})" for host, on in ranks_on.items()], MOST_IN_WORDS),
    }


def _quoted(placement: Placement | None, evidence: dict[str, object]) -> dict[str, str]:
    """Quoted lines, the first rank that noticed and the like, as additions to a sentence."""
    quoted = {word: form.format(evidence[word]) for word, form in ADDITIONS.items() if word in evidence}
    if placement and type(witness := evidence.get("witness")) is int:
        quoted["witness"] = f"; {name(placement, witness)} lost its connection to another rank"
    return quoted
