"""Reads the states of jobs in qstat's output, and the end of a job from its exit status: the event, and the host.

The form is that of `-f -w`: one line for each attribute, its line breaks written as `\\n`. JSON is not used: it is
invalid for values such as `.5` and `nan`. Nor is plain text: it prints line breaks in a job's variables as they are, so
any user's job can imitate the lines of another. `-E` queries all named jobs at once. Both came in PBS 18.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping, Sequence
from signal import Signals

from torusrun.orchestrator.base.process import Finished
from torusrun.orchestrator.base.states import State, Status, never_starts
from torusrun.orchestrator.schedulers.pbs.facts import records
from torusrun.training.counted import first_of

UNKNOWN_JOB, FINISHED_JOB = 153, 35  # pbs_errno & 255, for some of the named jobs; the others are reported
NO_HISTORY = "not configured to maintain job history"
DELETED = "91"  # substate of a deleted job: src/include/job.h of OpenPBS, JOB_SUBSTATE_TERMINATED
CTIME = "%a %b %d %H:%M:%S %Y"

WAITING = {"Q": "", "T": "being moved to another server", "W": "it waits for its time, or for its files"}
GOING_ON = {"R": "", "E": "ending", "S": "suspended", "U": "suspended: its node is in use by its owner"}
HELD_BY = {"u": "its user", "o": "an operator", "s": "the system", "p": "a bad password"}

Attributes = Mapping[str, str]
NOT_STARTED = "its script could not be started (PBS's log on {first} says why)"
DAEMON = "the job ended as PBS's daemon on {first} was started again"
MOST_HOSTS = 4


def listed(answer: Finished) -> dict[str, Status]:
    """The states of the jobs in qstat's output."""
    _checked(answer)
    return {job_id: _status(attributes) for job_id, attributes in records(answer.stdout, "Job Id: ").items()}


def starts(answer: Finished) -> dict[str, float]:
    """The estimated starts in qstat's output, of time.time(), as `Tue Feb 14 02:10:01 2023` on this machine's clock."""
    _checked(answer)
    starts_s = {}
    for job_id, attributes in records(answer.stdout, "Job Id: ").items():
        with contextlib.suppress(ValueError, OverflowError):
            starts_s[job_id] = time.mktime(time.strptime(attributes.get("estimated.start_time", ""), CTIME))
    return starts_s


def lost(answer: Finished) -> str:
    """Why the server has lost a host, by pbsnodes's answer about it; '' if it has not."""
    for vnode in records(answer.check("asking PBS for the state of a host").stdout, "", " +").values():
        if "down" in vnode.get("state", "").split(","):
            return vnode.get("comment", "down")
    return ""


def _checked(answer: Finished) -> None:
    """Raise SiteError unless PBS answered. That it knows no such job, or keeps no ended jobs, is an answer."""
    if answer.exit_code not in (UNKNOWN_JOB, FINISHED_JOB) and NO_HISTORY not in answer.stderr:
        answer.check("asking PBS for the states of jobs")


def _status(job: Attributes) -> Status:
    letter, comment = job.get("job_state", ""), _one_line(job.get("comment", ""))
    hosts = _hosts(job.get("exec_host", ""))
    if _a_task_runs(job):
        return Status(State.RUNNING)
    if letter in WAITING:
        if comment.startswith("Can Never Run"):
            return never_starts(comment)
        return Status(State.PENDING, comment or WAITING[letter])
    if letter == "B":  # its comment says only when it began
        return Status(State.PENDING)
    if letter == "H":
        return _held(job)
    if letter in GOING_ON:
        return Status(State.RUNNING, GOING_ON[letter], hosts)
    if letter in ("F", "X"):  # X: an ended task of an array that still runs
        return _task_of_the_past(comment) or _ended(job, comment, hosts)
    if letter == "M":
        return Status(State.UNKNOWN, f"PBS has moved it to another server; query that server: {comment}")
    return Status(State.UNKNOWN, f"PBS says {_one_line(letter)!r}, which this torusrun does not know")


def _a_task_runs(job: Attributes) -> bool:
    """Whether the job is an array of which a task runs. Its letter may be B, but also Q for a moment, or H if held."""
    counts = dict(re.findall(r"(\w+):(\d+)", job.get("array_state_count", "")))
    return job.get("job_state") != "F" and int(counts.get("Running", 0)) + int(counts.get("Exiting", 0)) > 0


def _held(job: Attributes) -> Status:
    holders = [HELD_BY.get(letter, letter) for letter in _one_line(job.get("Hold_Types", ""))]
    awaited = _awaited(job)
    if awaited and "s" in job.get("Hold_Types", ""):
        return Status(State.PENDING, f"it waits for other jobs ({awaited})", held=True)
    return Status(State.PENDING, f"held by {' and '.join(holders)}; qrls releases it")


def _awaited(job: Attributes) -> str:
    """The jobs that this job waits for. The list also has those that wait for this job, as `beforeok:ID`."""
    listed = _one_line(job.get("depend", "")).split(",")
    return ",".join(part for part in listed if not part.startswith("before"))


def _task_of_the_past(comment: str) -> Status | None:
    """The state of a task whose own record PBS no longer has; None for others. All its values are the array's.

    This includes the exit status. "Subjob finished" may mean that it never ran (status_subjob, OpenPBS's stat_job.c).
    """
    return {
        "Subjob finished": Status(State.LOST, "the task is over, and PBS no longer reports how it ended"),
        "Subjob failed": Status(State.FAILED, "PBS says that the task failed, and no longer reports how"),
        "Subjob terminated": Status(
            State.CANCELLED, "PBS says that the task was deleted, and no longer reports by whom"
        ),
    }.get(comment)


def _ended(job: Attributes, comment: str, hosts: tuple[str, ...]) -> Status:
    """The end of a job, by its exit status. Before the end, a job that runs again may still show an old status."""
    by = re.search(r"terminated by (\S+)", comment)
    if "Exit_status" not in job and not (by and hosts):
        awaited = _awaited(job) if job.get("substate") != DELETED else ""
        why = f"dropped by its dependency ({awaited})" if awaited else "deleted before it started"
        return Status(State.CANCELLED, f"{why}: it never ran")
    if by:  # without an exit status, if it was deleted by force
        who = f"its user, {by[1]}" if by[1] == job.get("Job_Owner", "") else f"{by[1]}, who is not its user"
        return Status(State.CANCELLED, f"deleted by {who}", hosts)
    if not re.fullmatch(r"-?\d+", job["Exit_status"]):
        return Status(State.UNKNOWN, f"PBS says exit status {_one_line(job['Exit_status'])!r}, which is not a number")
    code = int(job["Exit_status"])
    if code < 0:
        return server_ended(code, comment, hosts)
    if code == 0:
        return Status(State.COMPLETED, "", hosts)
    return Status(State.FAILED, f"PBS says {exit_words(code)}", hosts)


def _hosts(exec_host: str) -> tuple[str, ...]:
    """The hosts in exec_host, as n1, n2 for 'n1/0*4+n2/0*4'."""
    return tuple(dict.fromkeys(part.partition("/")[0] for part in exec_host.split("+") if part))


def _one_line(value: str) -> str:
    """A value of free text as one line: qstat writes a line break as a backslash and an n."""
    return "".join(char if char.isprintable() else " " for char in value.replace("\\n", " ")).strip()


# Negative exit statuses are the server's own: src/include/job.h of OpenPBS, JOB_EXEC_...
SERVERS_WORD = {
    -1: (State.FAILED, NOT_STARTED),
    -2: (State.FAILED, NOT_STARTED),
    -3: (State.FAILED, "it could not be started, and was to be tried again"),
    -4: (State.NODE_FAIL, DAEMON),
    -5: (State.NODE_FAIL, DAEMON),
    -6: (State.NODE_FAIL, DAEMON),
    -10: (State.FAILED, "its user is not known on {first}"),
    -14: (State.NODE_FAIL, "it lost {others}"),
    -17: (State.FAILED, "a hook of the site refused it"),
    -19: (State.CANCELLED, "a hook of the site deleted it"),
    -20: (State.NODE_FAIL, "it lost {first}"),
    -24: (State.FAILED, "it used more processors than it had asked for"),
    -25: (State.FAILED, "it used more processors than it had asked for"),
    -26: (State.OOM, "it used more virtual memory than it had asked for"),
    -27: (State.OOM, "it used more memory than it had asked for"),
    -28: (State.TIMEOUT, "it used more processor time than it had asked for"),
    -29: (State.TIMEOUT, "it reached its time limit"),
}


def server_ended(code: int, comment: str, hosts: Sequence[str]) -> Status:
    """The end that the server itself recorded, as a negative exit status; `hosts` are the job's, in order."""
    if code not in SERVERS_WORD:
        why = f"PBS ended it for a reason of its own (exit status {code}): {comment}"
        return Status(State.FAILED, why, tuple(hosts))
    state, words = SERVERS_WORD[code]
    first = f"its first node ({hosts[0]})" if hosts else "its first node"
    happened = words.format(first=first, others=_others(hosts))
    return Status(state, f"PBS says that {happened} (exit status {code})", tuple(hosts))


def exit_words(code: int) -> str:
    """A positive exit status in words: 256 plus a signal of the job's own shell, 128 plus that of a program in it."""
    number = code - 256 if code > 256 else code - 128
    if code <= 128 or number not in Signals._value2member_map_:
        return f"exit code {code}"
    whose = "its shell" if code > 256 else "a program in it"
    return f"that {whose} was ended by {Signals(number).name} (exit status {code})"


def _others(hosts: Sequence[str]) -> str:
    """The nodes other than the first, in words; PBS does not report which of them it was."""
    others = list(hosts[1:])
    if len(others) == 1:
        return f"its other node ({others[0]})"
    return f"one of its other nodes ({first_of(others, MOST_HOSTS)})" if others else "a node other than its first"
