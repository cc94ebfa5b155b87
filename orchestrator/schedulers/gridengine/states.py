"""Reads the states of jobs in the XML of qstat, and their ends in the records of qacct: state, event and host.

Sources: sge_status(5) and accounting(5) of Son of Grid Engine 8.1.9; records of a real Grid Engine (its tests); Univa's
and Altair's `deleted_by` from their manuals.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from signal import SIGKILL

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.process import Finished
from torusrun.orchestrator.base.signals import signal_name
from torusrun.orchestrator.base.states import State, Status, never_starts
from torusrun.orchestrator.schedulers.words import with_arrays

# The letters of qstat's states (sge_status(5)), and what the unusual letters mean.
LETTERS = set("dEhqrRsSTtw")
WORDS = {
    "d": "being deleted",
    "s": "suspended by qmod: its processes are stopped until `qmod -usj` resumes them",
    "S": "suspended with its queue: its processes are stopped",
    "T": "suspended for the load of its host: its processes are stopped",
    "R": "rescheduled",
    "t": "being sent to its hosts",
}
PROLOG_S = 60  # how long a site may prepare a job before its time begins to count
# The codes of `failed` of a job that ran to its end all the same: its exit status counts.
RAN = {0, 12, 13, 14, 15, 16}
AFTER = 100  # "assumedly after job": a signal ended it
LIMIT = 37
QDEL = ", by qdel or for lack of memory: the record does not say which"
# The meaning of the other codes, with the state if it is not just a failure. {host} is the record's host.
NOT_STARTED = "it could not be started on {host}"
READ = {"jobnumber", "taskid", "pe_taskid", "hostname", "failed", "deleted_by", "exit_status", "ru_wallclock",
        "ru_minflt", "maxvmem", "category"}  # fmt: skip


def queued(answer: Finished) -> dict[str, Status]:
    """The states of the jobs in the XML of qstat, with the hosts of running jobs."""
    root = _root(answer, "asking Grid Engine for the states of jobs")
    jobs = {_id(job): job for job in root.iter("job_list")}
    hosts: dict[str, dict[str, bool]] = {job_id: {} for job_id in jobs}
    for queue in root.iter("Queue-List"):
        host, silent = queue.findtext("name", "").rpartition("@")[2], "u" in queue.findtext("state", "")
        for job in queue.iter("job_list"):
            hosts[_id(job)][host] = silent
    return with_arrays({job_id: _status(job, hosts[job_id]) for job_id, job in jobs.items()}, ".")


def called(answer: Finished, name: str) -> list[str]:
    """The ids of the jobs with this name in the XML of qstat, with an array once."""
    jobs = _root(answer, "asking Grid Engine for a job by its name").iter("job_list")
    return [*dict.fromkeys(job.findtext("JB_job_number", "") for job in jobs if job.findtext("JB_name") == name)]


def recorded(answer: Finished) -> dict[str, Status]:
    """The states of the jobs in the records of qacct."""
    # Before the first job has ended there is no accounting file. A job that is not in the file is an error of qacct.
    if answer.exit_code == 1 and re.search(r"accounting: No such file|job id \d+ not found", answer.stderr):
        return {}
    answer.check("asking Grid Engine's accounting")
    records: dict[str, list[Record]] = {}
    for text in re.split(r"^=+\n", answer.stdout, flags=re.MULTILINE):
        pairs = (line.partition(" ") for line in text.splitlines())
        record = {key: value.strip() for key, _, value in pairs if key in READ}
        if "jobnumber" in record:
            records.setdefault(_key(record["jobnumber"], record.get("taskid")), []).append(record)
    return with_arrays({key: ended(own) for key, own in records.items()}, ".")


def _root(answer: Finished, doing: str) -> ET.Element:
    return xml(answer.check(doing).stdout, doing)


def xml(text: str, doing: str) -> ET.Element:
    """The root of a command's output. Raises SiteError if it cannot be read."""
    try:
        return ET.fromstring(text)
    except ET.ParseError as error:
        raise SiteError(f"{doing}: its XML cannot be read: {error}") from None


def _key(job: str, task: str | None) -> str:
    """The id of a job, or of a task of an array."""
    return f"{job}.{task}" if task and task.isdigit() else job


def _id(job: ET.Element) -> str:
    return _key(job.findtext("JB_job_number", ""), job.findtext("tasks"))


def _status(job: ET.Element, hosts: Mapping[str, bool]) -> Status:
    """The state of one job or task in qstat's XML; `hosts` are its hosts, with whether each is silent."""
    letters, job_id = job.findtext("state", ""), job.findtext("JB_job_number", "")
    if not letters or set(letters) - LETTERS:
        return Status(State.UNKNOWN, f"Grid Engine says {letters!r}, which this torusrun does not know")
    reasons = [WORDS[letter] for letter in letters if letter in WORDS]
    if {"R", "t"} <= set(letters):  # it may stay so for long, and no process of it runs
        return Status(State.PENDING, f"{'; '.join(reasons)} (Grid Engine: {letters})")
    if "q" not in letters:
        reasons += [f"{host} does not answer Grid Engine" for host, silent in hosts.items() if silent]
        return Status(State.RUNNING, "; ".join(reasons), tuple(hosts))
    if "E" in letters:
        reasons.append(f"it could not be started (qstat -j {job_id} says why)")
        return never_starts("; ".join(reasons))
    if "h" in letters:
        awaited = [element.text or "" for element in job.iter("predecessor_jobs")]
        reasons.append(f"it waits for job {', '.join(awaited)}" if awaited else f"held: qrls {job_id} releases it")
    return Status(State.PENDING, "; ".join(reasons))


MEANS = {
    **dict.fromkeys((1, 3, 4, 6, 7, 9, 11, 29, 31), (State.FAILED, NOT_STARTED)),
    38: (State.FAILED, NOT_STARTED),  # adding its supplementary group; from memory
    8: (State.FAILED, "the queue's prolog failed on {host}"),
    10: (State.FAILED, "its parallel environment could not be started on {host}"),
    17: (State.FAILED, "it was ended by a signal, from qdel perhaps"),
    18: (State.FAILED, "Grid Engine's process that monitors it on {host} died"),
    19: (State.NODE_FAIL, "{host}, or Grid Engine's daemon there, went down"),
    20: (State.FAILED, "Grid Engine's process that monitors it on {host} met an error"),
    21: (State.NODE_FAIL, "{host} no longer knew it, most likely after a restart"),
    24: (State.FAILED, "it was to continue on another host"),
    25: (State.LOST, "it was to run again, and was deleted before that, most likely"),
    26: (State.FAILED, "its output file could not be opened on {host}"),
    27: (State.FAILED, "its shell does not exist on {host}"),
    28: (State.FAILED, "its working directory does not exist on {host}"),
    30: (State.FAILED, "its script ended with exit code 100, which Grid Engine takes for an error"),
}

Record = Mapping[str, str]  # of qacct, of which only READ is kept


def ended(records: Sequence[Record]) -> Status:
    """The end of a job by its records: those of its parallel tasks and earlier runs, then its own, which counts."""
    own = [record for record in records if record.get("pe_taskid", "NONE") == "NONE"] or records
    record = own[-1]
    state, meaning = _end(record)
    code, _, words = record.get("failed", "").partition(":")
    facts = f"failed {code.strip()}, {words.strip()}" if words else f"exit status {_number(record, 'exit_status')}"
    hosts = dict.fromkeys(r["hostname"] for r in [record, *records] if "hostname" in r)
    return Status(state, f"{meaning} (Grid Engine: {facts})" if meaning else f"Grid Engine says: {facts}", tuple(hosts))


def _end(record: Record) -> tuple[State, str]:
    """(the state by a record, its meaning in words, '' if unknown)."""
    code, status = _number(record, "failed"), _number(record, "exit_status")
    if code == LIMIT:
        return _limit(record)
    if (by := record.get("deleted_by", "NONE")) != "NONE":  # Univa and Altair
        return State.CANCELLED, f"deleted by {by}"
    if code in MEANS:
        state, meaning = MEANS[code]
        return state, meaning.format(host=record.get("hostname", "its host"))
    if status > 128 and code == AFTER:
        return State.FAILED, f"ended by {signal_name(status - 128)}" + (QDEL if status == 128 + SIGKILL else "")
    if status > 128 and code in RAN:
        return State.FAILED, f"a program in it ended by {signal_name(status - 128)}"
    if code in RAN and status == 0 and _number(record, "ru_minflt") == 0:  # no program runs without a page fault
        return State.CANCELLED, "ended without a trace of its processes, as after qdel -f"
    if code in RAN and status >= 0:
        return (State.FAILED if status else State.COMPLETED), f"its script ended with exit code {status}"
    return (State.FAILED if code > 0 else State.UNKNOWN), ""


def _limit(record: Record) -> tuple[State, str]:
    """The limit that a job reached, as (state, words). Time and memory have the same code: request and use decide."""
    asked = dict(re.findall(r"\b(h_rt|h_vmem)=([\w.]+)", record.get("category", "")))
    ran_s = _number(record, "ru_wallclock")
    if "h_vmem" in asked and ran_s + PROLOG_S < float(asked.get("h_rt", "inf")):
        used = record.get("maxvmem", "?")
        return State.OOM, f"it wanted more memory than it asked for: h_vmem={asked['h_vmem']} a slot, used {used}"
    return State.TIMEOUT, f"it reached its time limit: it ran for {ran_s} s"


def _number(record: Record, key: str) -> int:
    """The whole number that a value begins with, as in '137 (Killed)'; -1 without a number."""
    match = re.match(r"\d+", record.get(key, ""))
    return int(match[0]) if match else -1
