"""Reads the states of jobs in the XML of qstat and the records of qacct."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.process import Finished
from torusrun.orchestrator.base.states import State, Status, never_starts
from torusrun.orchestrator.schedulers.arrays import with_arrays
from torusrun.orchestrator.schedulers.gridengine.records import READ, Record, ended

# The letters of qstat's states (sge_status(5)), and the meaning of the unusual ones.
LETTERS = set("dEhqrRsSTtw")
WORDS = {
    "d": "being deleted",
    "s": "suspended by qmod: its processes are stopped until `qmod -usj` resumes them",
    "S": "suspended with its queue: its processes are stopped",
    "T": "suspended for the load of its host: its processes are stopped",
    "R": "rescheduled",
    "t": "being sent to its hosts",
}


def queued(said: Finished) -> dict[str, Status]:
    """The states of the jobs in the XML of qstat, with the hosts of running jobs."""
    root = _answer(said, "asking Grid Engine for the states of jobs")
    jobs = {_id(job): job for job in root.iter("job_list")}
    hosts: dict[str, dict[str, bool]] = {job_id: {} for job_id in jobs}
    for queue in root.iter("Queue-List"):
        host, silent = queue.findtext("name", "").rpartition("@")[2], "u" in queue.findtext("state", "")
        for job in queue.iter("job_list"):
            hosts[_id(job)][host] = silent
    return with_arrays({job_id: _status(job, hosts[job_id]) for job_id, job in jobs.items()}, _array_of)


def called(said: Finished, name: str) -> list[str]:
    """The ids of the jobs with this name in the XML of qstat, with an array once."""
    jobs = _answer(said, "asking Grid Engine for a job by its name").iter("job_list")
    return [*dict.fromkeys(job.findtext("JB_job_number", "") for job in jobs if job.findtext("JB_name") == name)]


def recorded(said: Finished) -> dict[str, Status]:
    """The states of the jobs in the records of qacct."""
    # Before the first job has ended there is no accounting file. A job that is not in the file is an error of qacct.
    if said.exit_code == 1 and re.search(r"accounting: No such file|job id \d+ not found", said.stderr):
        return {}
    said.check("asking Grid Engine's accounting")
    records: dict[str, list[Record]] = {}
    for text in re.split(r"^=+\n", said.stdout, flags=re.MULTILINE):
        pairs = (line.partition(" ") for line in text.splitlines())
        record = {key: value.strip() for key, _, value in pairs if key in READ}
        if "jobnumber" in record:
            records.setdefault(_key(record["jobnumber"], record.get("taskid")), []).append(record)
    return with_arrays({key: ended(found) for key, found in records.items()}, _array_of)


def _answer(said: Finished, doing: str) -> ET.Element:
    return xml(said.check(doing).stdout, doing)


def xml(text: str, doing: str) -> ET.Element:
    """The root of a command's output. Raises SiteError if it cannot be read."""
    try:
        return ET.fromstring(text)
    except ET.ParseError as error:
        raise SiteError(f"{doing}: its XML cannot be read: {error}") from None


def _key(job: str, task: str | None) -> str:
    """The id of a job, or of a task of an array."""
    return f"{job}.{task}" if task and task.isdigit() else job


def _array_of(job: str) -> str | None:
    """The array of a task, as 7 for '7.3'."""
    array, _, task = job.partition(".")
    return array if task else None


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
