"""The ways in which an attempt can end, each with a cause and the sentence that users read."""

from __future__ import annotations

from enum import Enum

from torusrun.orchestrator.base.states import Cause

IDLE = "no progress for {idle_s:.0f} s{at}"
HUNG = f"{IDLE} (limit: {{limit_s:.0f}} s{{while}}): "
NEAR = " is near"
WAITS_FOR_DISK = "it waits for a disk or a file system"  # a rank's process in a hang


class How(Enum):
    """A way to end: its cause and its sentence.

    The sentence names all ranks {all}, the ranks concerned {who} or {first}, the hosts concerned {places}, the end of
    a rank's process {rank}, the last step {at}, the last line of a rank or of the launcher {said}, and the first rank
    that noticed {witness}. Its other fields are evidence.
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
    HANDED_OVER = Cause.STOPPED, "{wanted}: attempt {next} continues"
    PERHAPS_HANDED_OVER = Cause.STOPPED, "{wanted}, and whether attempt {next} was submitted is not known: {why}"
    NOT_HANDED_OVER = Cause.STOPPED, "{wanted}, and {host} could not submit the next attempt ({why}); {to_do}"
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

    def __init__(self, cause: Cause, sentence: str) -> None:
        self.cause, self.sentence = cause, sentence
