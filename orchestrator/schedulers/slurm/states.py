"""Reads the states of jobs in the output of squeue and sacct, one line for each job, and explains them with a remedy.

Slurm's own word stays, so that users can look it up. Sources: squeue(1) of 22.05, JOB REASON CODES and JOB STATE CODES;
src/common/job_state_reason.c of Slurm 25.11, which has the names of all reasons. Lines marked so are from memory.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.process import Finished
from torusrun.orchestrator.base.signals import signal_name
from torusrun.orchestrator.base.states import State, Status, never_starts
from torusrun.orchestrator.place.hosts.hostlist import expand
from torusrun.orchestrator.schedulers.words import with_arrays
from torusrun.training.counted import first_of

WORDS = {
    State.PENDING: "PENDING CONFIGURING REQUEUED REQUEUE_FED REQUEUE_HOLD SPECIAL_EXIT RESV_DEL_HOLD",
    State.RUNNING: "RUNNING COMPLETING SUSPENDED STOPPED RESIZING SIGNALING STAGE_OUT",
    State.COMPLETED: "COMPLETED",
    State.FAILED: "FAILED LAUNCH_FAILED RECONFIG_FAIL",
    State.TIMEOUT: "TIMEOUT DEADLINE",
    State.PREEMPTED: "PREEMPTED",
    State.NODE_FAIL: "NODE_FAIL BOOT_FAIL",
    State.OOM: "OUT_OF_MEMORY",
    State.CANCELLED: "CANCELLED",
    State.UNKNOWN: "REVOKED",  # another cluster of the federation has the job
}
STATES = {word: state for state, words in WORDS.items() for word in words.split()}
RELEASE = "`scontrol release {job}` releases it"

# Why a pending job waits, if it can start sooner or later.
WAITS = {
    "Resources": "it waits for free nodes",
    "Priority": "jobs of higher priority are before it",
    "Dependency": "it waits for another job to end",
    "BeginTime": "its earliest start time has not come",  # also for a job that Slurm has requeued
    "Licenses": "it waits for a license",
    "JobHeldUser": f"held by its user: {RELEASE}",
    "JobHeldAdmin": "held by an administrator, or by Slurm after a failed start: ask the administrators",
    "ReqNodeNotAvail": "nodes that it needs are down, drained or reserved, as for maintenance",
    "Reservation": "its reservation has not begun",
    "ReservationDeleted": "its reservation was deleted: submit it without one, or with another",
    "Prolog": "its nodes are being made ready",
    "Cleaning": "Slurm cleans up after its last start",
    "JobArrayTaskLimit": "as many tasks of its array run as may run at once",
    "JobHoldMaxRequeue": "held, as it went back into the queue too often: ask the administrators",  # from memory
    "AssociationJobLimit": "its account runs as many jobs as allowed",
    "AssociationResourceLimit": "its account uses as much as allowed",
    "AssociationTimeLimit": "its account has used up its time",
    "QOSJobLimit": "its quality of service runs as many jobs as allowed",
    "QOSResourceLimit": "its quality of service uses as much as allowed",
    "QOSTimeLimit": "its quality of service has used up its time",
    "QOSUsageThreshold": "its account has used too much for its quality of service",
    "FrontEndDown": "no front end node is up",
    "SystemFailure": "Slurm, a file system or the network failed: ask the administrators",
    "WaitingForScheduling": "Slurm has not looked at it yet",
    "None": "",  # Slurm has not looked at it yet
}
# Why a pending job never starts. sbatch accepts such a job if the site does not enforce its limits at submission.
NEVER = {
    "PartitionNodeLimit": "it asks for more nodes than the partition allows, or for nodes that are down",
    "PartitionTimeLimit": "it asks for more time than the partition allows",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is inactive",
    "PartitionConfig": "its partition does not allow what it asks for",
    "InvalidAccount": "its account is not valid",
    "AccountNotAllowed": "its account may not use this partition",
    "InvalidQOS": "its quality of service is not valid",
    "QOSNotAllowed": "its quality of service may not be used here",
    "ReservationInvalid": "its reservation is not valid",
    "DependencyNeverSatisfied": "it waits for a job that did not end as required",
    "BadConstraints": "no node satisfies its constraints",
    "MaxMemPerLimit": "it asks for more memory than the partition allows",
}
# Kinds of reasons with a reason for each resource: (pattern, meaning, whether a job with it can start).
KINDS = (
    (r"AssocMax\w*Per(Job|Node)(Limit)?", "it asks for more than its account allows one job", False),
    (r"QOSMax\w*Per(Job|Node)(Limit)?", "it asks for more than its quality of service allows one job", False),
    (r"QOSMin\w+", "it asks for less than its quality of service demands of a job", False),
    (r"(AssocGrp|Max\w+PerAccount)\w*", "its account uses as much as allowed", True),
    (r"AssocMax\w+", "its user's jobs have reached a limit of this account", True),
    (r"QOSGrp\w+", "its quality of service uses as much as allowed", True),
    (r"QOSMax\w+", "its user has reached a limit of this quality of service", True),
)
# The meaning of states other than plain waiting or running.
ON_ITS_WAY = {
    "CONFIGURING": "its nodes are being made ready",
    "COMPLETING": "its processes are being ended",
    "SUSPENDED": "suspended: its processes are stopped until Slurm resumes them",
    "STOPPED": "stopped by SIGSTOP: its processes wait for SIGCONT",
    "REQUEUED": "Slurm has put it back into the queue",
    "REQUEUE_FED": "Slurm has put it back into the queue",
    "REQUEUE_HOLD": f"Slurm has put it back into the queue and holds it: {RELEASE}",
    "SPECIAL_EXIT": f"Slurm has put it back into the queue and holds it: {RELEASE}",
    "RESV_DEL_HOLD": f"held, as its reservation was deleted: {RELEASE}",
}
# How a job ended: by its state, and then, if that says too little, by its reason.
ENDS = {
    "COMPLETED": "its script ended with exit code 0",
    "TIMEOUT": "it reached its time limit",
    "DEADLINE": "its deadline came before it could end",
    "PREEMPTED": "Slurm took its nodes for a job of higher priority",
    "OUT_OF_MEMORY": "a process in it wanted more memory than the job had asked for",
    "RECONFIG_FAIL": "its nodes could not be set up as it needs them",
    "LAUNCH_FAILED": "Slurm could not start it",
    "REVOKED": "another cluster of the federation has taken it",
    "FAILED": "its script failed",
}
FAILURES = {
    "NonZeroExitCode": "its script ended with an exit code other than 0",
    "RaisedSignal": "its script was ended by a signal",
    # 22.05 also gives this for a script that a signal ended: seen for a script that sent itself SIGSEGV.
    "JobLaunchFailure": "Slurm could not start it, or a signal ended its script",
    "SystemFailure": "Slurm, a file system or the network failed",
    "InactiveLimit": "it was idle for too long",
}
ENDING = {
    **FAILURES,
    "TimeLimit": ENDS["TIMEOUT"],
    "OutOfMemory": ENDS["OUT_OF_MEMORY"],
    "DeadLine": ENDS["DEADLINE"],
    # No node is named: squeue shows the nodes that a job still has (pack_job of job_mgr.c), so not the lost node.
    "NodeDown": "Slurm lost at least one of its nodes",
}
NOT_STARTED = 53  # sacct's signal of a job whose output files could not be opened, or whose prolog failed; from memory


def queued(answer: Finished) -> dict[str, Status]:
    """The states of the jobs in squeue's output."""
    answer.check("asking Slurm for the states of jobs")
    rows = [line.split("|", 2) for line in answer.stdout.splitlines() if line.count("|") >= 3]
    # A reason may contain any text.
    return with_arrays({job: _status(job, word, *rest.rsplit("|", 1)) for job, word, rest in rows}, "_")


def starts(answer: Finished) -> dict[str, float]:
    """The estimated starts in squeue's output, of time.time(); a job without an estimate has N/A."""
    answer.check("asking Slurm when jobs will start")
    starts_s = {row[0]: moment(row[1]) for line in answer.stdout.splitlines() if len(row := line.split("|")) == 2}
    return {job: start_s for job, start_s in starts_s.items() if start_s is not None}


def moment(text: str) -> float | None:
    """A time of Slurm on this machine's clock, as 2026-11-20T23:37:17; None for any other text.

    The user's SLURM_TIME_FORMAT may ask for another form.
    """
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None


def called(answer: Finished) -> list[str]:
    """The ids of jobs in squeue's output, with an array once, though each running task of it has a line."""
    return [*dict.fromkeys(answer.check("asking Slurm for a job by its name").stdout.split())]


def recorded(answer: Finished) -> dict[str, Status]:
    """The states of the jobs in sacct's output."""
    if "accounting storage is disabled" in answer.stderr:  # src/sacct/options.c: this site keeps no records
        return {}
    answer.check("asking Slurm's accounting")
    rows = [line.split("|") for line in answer.stdout.splitlines()]
    return with_arrays({row[0]: _of_record(*row) for row in rows if len(row) == 4}, "_")


def _hosts(nodes: str) -> tuple[str, ...]:
    """The hosts in a row; () if it has none, or a list that cannot be read, which must not hide the other jobs."""
    if nodes in ("", "(null)", "None assigned"):
        return ()
    try:
        return tuple(expand(nodes))
    except SiteError:
        return ()


def _status(job: str, word: str, reason: str, nodes: str) -> Status:
    state, hosts = STATES.get(word, State.UNKNOWN), _hosts(nodes)
    if state is State.UNKNOWN:
        return Status(state, f"Slurm says {word}, which this torusrun does not know", hosts)
    if state is State.PENDING:
        meant, starts = pending(word, reason, job)
        return Status(state, meant, hosts) if starts else never_starts(meant, hosts)
    if state is State.RUNNING:
        return Status(state, running(word, reason), hosts)
    return Status(state, ended(word, reason, hosts), hosts)


def _of_record(job: str, words: str, exit_code: str, nodes: str) -> Status:
    """The state in one row of sacct, for example 'CANCELLED by 1001'."""
    word = words.split()[0] if words.split() else ""
    state = STATES.get(word, State.UNKNOWN)
    hosts = _hosts(nodes)
    if state.over:
        return Status(state, accounted(words, exit_code, hosts), hosts)
    if state is State.UNKNOWN:
        return Status(state, f"Slurm's accounting says {words!r}, which this torusrun does not know", hosts)
    return Status(state, f"squeue does not show it, but Slurm's accounting says {words}", hosts)


def pending(word: str, reason: str, job: str) -> tuple[str, bool]:
    """(why a pending job waits, whether it can start); `reason` is squeue's, which may be a whole sentence."""
    meant, starts = _waiting(reason)
    if word in ON_ITS_WAY:
        meant = "; ".join(filter(None, (ON_ITS_WAY[word], meant)))
    if not meant and reason in ("", "None"):
        return "", True
    return _with(meant.format(job=job), word if word != "PENDING" else "", reason), starts


def _waiting(reason: str) -> tuple[str, bool]:
    """(the meaning of a reason for waiting, '' if unknown; whether a job with it can start)."""
    key = re.split(r"\W", reason, maxsplit=1)[0]  # as in 'ReqNodeNotAvail, UnavailableNodes:node3'
    if key in NEVER:
        return NEVER[key], False
    if key in WAITS:
        return WAITS[key], True
    if reason.startswith("Nodes required for job are DOWN"):
        return WAITS["ReqNodeNotAvail"], True
    return next(((meant, starts) for kind, meant, starts in KINDS if re.fullmatch(kind, key)), ("", True))


def running(word: str, reason: str) -> str:
    """The unusual state of a job that has nodes, in words; '' if nothing is unusual."""
    why = ENDING.get(reason) or _waiting(reason)[0]
    meant = ": ".join(filter(None, (ON_ITS_WAY.get(word, ""), why)))
    return _with(meant, word if word in ON_ITS_WAY else "", reason) if meant or reason not in ("", "None") else ""


def ended(word: str, reason: str, hosts: Sequence[str]) -> str:
    """How a job ended, from squeue's state and reason."""
    if word == "CANCELLED":
        return _with(*_cancelled(reason, hosts))
    meant = _end(word, hosts)
    if word == "FAILED" and reason not in ("", "None"):
        meant = FAILURES.get(reason) or _waiting(reason)[0] or meant
    return _with(meant, word, reason)


def accounted(words: str, exit_code: str, hosts: Sequence[str]) -> str:
    """How a job ended, from sacct's state, as 'CANCELLED by 1001', and exit code, as '7:0', or '0:11' for a signal."""
    word, _, by = words.partition(" by ")
    code, _, number = exit_code.partition(":")
    if word == "CANCELLED":
        meant = f"cancelled by {'root' if by == '0' else f'user {by}'}" if by else "cancelled"
        return _with(meant if hosts else f"{meant} before it started: it never ran", words, "")
    meant = _end(word, hosts)
    if word == "FAILED" and number == str(NOT_STARTED):
        meant = "Slurm could not start it, as when its output files cannot be opened"
    elif word == "FAILED" and number.isdecimal() and number != "0":
        meant = f"its script was ended by {signal_name(int(number))}"
    elif word == "FAILED" and code not in ("", "0"):
        meant = f"its script ended with exit code {code}"
    return _with(meant, words, "")


def _cancelled(reason: str, hosts: Sequence[str]) -> tuple[str, str]:
    """(the end of a cancelled job, Slurm's words for it), with the reason for which it waited, if any."""
    if reason == "DependencyNeverSatisfied":
        meant = "dropped by its dependency, it never ran: the job before it did not end as required"
        return meant, f"CANCELLED, {reason}"
    before = "" if reason in ("", "None") else f"; before: {reason}"
    how = "cancelled, by its user or by an administrator" if hosts else "cancelled while it waited: it never ran"
    return how, f"CANCELLED{before}"


def _end(word: str, hosts: Sequence[str]) -> str:
    if word == "NODE_FAIL":
        return f"Slurm lost {_one_of(hosts)}"
    if word == "BOOT_FAIL":
        return f"{_one_of(hosts)} could not be booted"
    return ENDS.get(word, "")


def _one_of(hosts: Sequence[str]) -> str:
    """The affected host in words; it is known only for a job on one node. `hosts` are all hosts of the job."""
    if len(hosts) == 1:
        return hosts[0]
    return f"at least one of its nodes ({first_of(hosts)})" if hosts else "a node of it"


def _with(meant: str, *words: str) -> str:
    """The meaning, and Slurm's own words for it in parentheses; only Slurm's words if the meaning is unknown."""
    own = ", ".join(word for word in words if word and word != "None")
    both = f"{meant} (Slurm: {own})" if meant else f"Slurm says: {own}"
    return both if own else meant
