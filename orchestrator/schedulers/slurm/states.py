"""Reads the states of jobs in the output of squeue and sacct: one line of fixed fields for each job."""

from __future__ import annotations

import time

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.process import Finished
from torusrun.orchestrator.base.states import State, Status, never_starts
from torusrun.orchestrator.place.hosts.hostlist import expand
from torusrun.orchestrator.schedulers.slurm import reasons
from torusrun.orchestrator.schedulers.words import with_arrays

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


def queued(said: Finished) -> dict[str, Status]:
    """The states of the jobs in squeue's output."""
    said.check("asking Slurm for the states of jobs")
    rows = [line.split("|", 2) for line in said.stdout.splitlines() if line.count("|") >= 3]
    found = {job: _status(job, word, *rest.rsplit("|", 1)) for job, word, rest in rows}  # a reason may contain any text
    return with_arrays(found, _array_of)


def starts(said: Finished) -> dict[str, float]:
    """The estimated starts in squeue's output, of time.time(); a job without one has N/A."""
    said.check("asking Slurm when jobs will start")
    found = {row[0]: moment(row[1]) for line in said.stdout.splitlines() if len(row := line.split("|")) == 2}
    return {job: start_s for job, start_s in found.items() if start_s is not None}


def moment(text: str) -> float | None:
    """A time of Slurm on this machine's clock, as 2026-11-20T23:37:17; None for any other text.

    The user's SLURM_TIME_FORMAT may ask for another form.
    """
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None


def called(said: Finished) -> list[str]:
    """The ids of jobs in squeue's output, with an array once, though each running task of it has a line."""
    return [*dict.fromkeys(said.check("asking Slurm for a job by its name").stdout.split())]


def recorded(said: Finished) -> dict[str, Status]:
    """The states of the jobs in sacct's output."""
    if "accounting storage is disabled" in said.stderr:  # src/sacct/options.c: this site keeps no records
        return {}
    said.check("asking Slurm's accounting")
    rows = [line.split("|") for line in said.stdout.splitlines()]
    return with_arrays({row[0]: _ended(*row) for row in rows if len(row) == 4}, _array_of)


def _array_of(job: str) -> str | None:
    """The array of a task, as 7 for '7_3' and for the waiting tasks '7_[4-9%1]'."""
    array, _, task = job.partition("_")
    return array if task else None


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
        meant, starts = reasons.pending(word, reason, job)
        return Status(state, meant, hosts) if starts else never_starts(meant, hosts)
    if state is State.RUNNING:
        return Status(state, reasons.running(word, reason), hosts)
    return Status(state, reasons.ended(word, reason, hosts), hosts)


def _ended(job: str, words: str, exit_code: str, nodes: str) -> Status:
    """The state in one row of sacct, for example 'CANCELLED by 1001'."""
    word = words.split()[0] if words.split() else ""
    state = STATES.get(word, State.UNKNOWN)
    hosts = _hosts(nodes)
    if state.over:
        return Status(state, reasons.accounted(words, exit_code, hosts), hosts)
    if state is State.UNKNOWN:
        return Status(state, f"Slurm's accounting says {words!r}, which this torusrun does not know", hosts)
    return Status(state, f"squeue does not show it, but Slurm's accounting says {words}", hosts)
