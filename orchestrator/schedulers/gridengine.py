"""Grid Engine: Son of Grid Engine 8.1.9, and Univa's and Altair's where their records say more."""

from __future__ import annotations

import getpass
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import Signals

from orchestrator.errors import SiteError, UserError
from orchestrator.process import Finished
from orchestrator.schedulers.seam import Request, Scheduler
from orchestrator.states import State, Status

DAYS = 31  # how far back the records of all jobs are read: longer than any job that somebody still asks about
PROLOG_S = 60  # what a site may do for a job before its time begins to count

# The letters that qstat makes its states of (sge_status(5)), and what those say that are not ordinary.
LETTERS = set("dEhqrRsSTtw")
WORDS = {
    "d": "being deleted",
    "s": "suspended by qmod",
    "S": "suspended with its queue",
    "T": "suspended for the load of its host",
    "R": "rescheduled",
    "t": "being sent to its hosts",
}

# The codes of `failed` after which a job has run to its end all the same: its exit status counts.
RAN = {0, 12, 13, 14, 15, 16}
LIMIT, SIGNALLED = 37, 100
# What else a code means than that the job failed; Grid Engine's own words for it are in the record.
MEANS = {
    19: (State.NODE_FAIL, "its host, or Grid Engine's daemon there, went down"),
    21: (State.NODE_FAIL, "its host, restarted most likely, no longer knew it"),
    24: (State.LOST, "it was to run again, and no later record says that it did"),
    25: (State.LOST, "it was to run again, and no later record says that it did"),
}

Record = Mapping[str, str]  # one record of qacct


class GridEngine(Scheduler):
    """Grid Engine's commands and their output; `user` is whose jobs are asked about."""

    name = "gridengine"
    template = "job/gridengine.sh.j2"
    job_variable = "JOB_ID"

    def __init__(self, user: str | None = None) -> None:
        self._user = user or getpass.getuser()

    def directives(self, request: Request) -> list[str]:
        options = [
            f"-N {_word(request.name)}",
            *(request.ask or _one_slot(request)),
            f"-l h_rt={_clock(request.time_s)}",
            "-S /bin/bash",  # else the queue's shell reads the script, whatever its first line says
            "-j y",
            "-o /dev/null",  # the script itself sends its output where it belongs
            "-notify",  # SIGUSR2 before SIGKILL, from qdel and at the time limit, with the queue's `notify` between
            "-r n",  # a rerun would run under the same attempt; `resume` makes a new one
        ]
        if request.memory_bytes:
            options.append(f"-l mem_free={_megabytes_per_slot(request)}M")
        if request.queue:
            options.append(f"-q {_word(request.queue)}")
        if request.account:
            options.append(f"-P {_word(request.account)}")
        if request.after:
            options.append(f"-hold_jid {','.join(request.after)}")
        if request.array:
            options.append(f"-t 1-{request.array}")
            options += [f"-tc {request.parallel}"] if request.parallel else []
        return [_directive(option) for option in [*options, *request.extra]]

    def submit_command(self, script: Path, request: Request) -> list[str]:
        return ["qsub", "-terse", "-V", *request.submit_args, str(script)]

    def job_id(self, stdout: str) -> str:
        ids = re.findall(r"^(\d+)(?:\.[\d:-]+)?\s*$", stdout, re.MULTILINE)  # an array is 20.1-3:1
        if not ids:
            raise SiteError(f"qsub did not print a job id but {stdout!r}; see qstat for whether it was submitted")
        return str(ids[-1])

    def task_id(self, job_id: str, index: int) -> str:
        return f"{job_id}.{index + 1}"

    def status_command(self, job_ids: Sequence[str]) -> list[str]:
        # -g d: every task of an array; -r: what a job waits for. -g t, which tells all hosts, prints a row for every
        # slot, and a node may have hundreds.
        return ["qstat", "-u", self._user, "-xml", "-r", "-g", "d"]

    def parse_status(self, said: Finished) -> dict[str, Status]:
        said.check("asking Grid Engine for the states of jobs")
        try:
            jobs = ET.fromstring(said.stdout).iter("job_list")
        except ET.ParseError as error:
            raise SiteError(f"asking Grid Engine for the states of jobs: its XML cannot be read: {error}") from None
        return {_key(job.findtext("JB_job_number", ""), job.findtext("tasks")): _status(job) for job in jobs}

    def accounting_command(self, job_ids: Sequence[str]) -> list[str]:
        # qacct takes one job: for several, the user's records of the last days hold them. -j alone is every job.
        jobs = sorted({job_id.partition(".")[0] for job_id in job_ids})
        one = len(jobs) == 1
        return ["qacct", "-o", self._user, *(["-j", *jobs] if one else ["-d", str(DAYS), "-j"])]

    def parse_accounting(self, said: Finished) -> dict[str, Status]:
        # Without any job that ended there is no accounting file, and a job that is not in it is an error to qacct.
        if said.exit_code == 1 and re.search(r"accounting: No such file|job id \d+ not found", said.stderr):
            return {}
        said.check("asking Grid Engine's accounting")
        records: dict[str, list[Record]] = {}
        for text in re.split(r"^=+\n", said.stdout, flags=re.MULTILINE):
            record = {key: value.strip() for key, _, value in (line.partition(" ") for line in text.splitlines())}
            if "jobnumber" in record:
                records.setdefault(_key(record["jobnumber"], record.get("taskid")), []).append(record)
        return {key: _ended(found) for key, found in records.items()}

    def cancel_command(self, job_id: str) -> list[str]:
        return ["qdel", job_id]

    def hosts(self, environment: Mapping[str, str], this_host: str) -> list[str]:
        if "JOB_ID" not in environment:
            raise SiteError("JOB_ID is not set: this is not inside a Grid Engine job")
        path = environment.get("PE_HOSTFILE") or environment.get("SGE_JOB_HOSTLIST")
        if not path:
            return [this_host]  # no parallel environment
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise SiteError(f"{path}: the list of the job's hosts cannot be read: {error.strerror}") from None
        found = dict.fromkeys(line.split()[0] for line in lines if line.strip())
        if not found:
            raise SiteError(f"{path}: the list of the job's hosts is empty")
        return list(found)


def _one_slot(request: Request) -> tuple[str, ...]:
    """A job's own words for one slot: none. Raises UserError where it needs more, which sites give in their own way."""
    if request.nodes * request.ranks_per_node * request.cpus_per_rank == 1 and not request.gpus_per_node:
        return ()
    raise UserError(
        "Grid Engine has no common way to ask for nodes, so the site has to say its own; write in the site's file, "
        'for a parallel environment (qconf -spl lists them), ask: ["-pe NAME {ranks}"], '
        'or for a resource that stands for nodes, ask: ["-l rt_F={nodes}"]'
    )


def _directive(option: str) -> str:
    """An option as qsub reads it from a line of the script."""
    if "#" in option:
        raise UserError(
            f"{option!r}: a '#' ends a line of Grid Engine's options; write this one in the site's 'submit_args'"
        )
    return f"#$ {option}"


def _word(value: str) -> str:
    """A value as one word: quotes hold blanks together, but nothing can hold a quote."""
    return f'"{value}"' if re.search(r"\s", value) else value


def _clock(seconds: float) -> str:
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _megabytes_per_slot(request: Request) -> int:
    """A rank's part of its node's memory, as if a rank were a slot.

    As `mem_free`: Grid Engine multiplies it by the slots where a site made it consumable, and compares it with what
    a host has free where not. `h_vmem` is a limit on the address space, of which a GPU's program has no measure.
    """
    return math.ceil((request.memory_bytes or 0) / request.ranks_per_node / 2**20)


def _key(job: str, task: str | None) -> str:
    """The id of a job, or of a task of an array."""
    return f"{job}.{task}" if task and task.isdigit() else job


def _status(job: ET.Element) -> Status:
    """One job of qstat's XML, or one task."""
    letters, job_id = job.findtext("state", ""), job.findtext("JB_job_number", "")
    if not letters or set(letters) - LETTERS:
        return Status(State.UNKNOWN, f"Grid Engine says {letters!r}, which this torusrun does not know")
    reasons = [WORDS[letter] for letter in letters if letter in WORDS]
    if "E" in letters:
        why = f"it could not be started, for a reason that qstat -j {job_id} tells; as it is, it will not start"
        return Status(State.PENDING, "; ".join([f"{letters}: {why}", *reasons]))
    if "q" not in letters:
        host = job.findtext("queue_name", "").rpartition("@")[2]
        return Status(State.RUNNING, "; ".join(reasons), (host,) if host and job.findtext("slots") == "1" else ())
    if "h" in letters:
        awaited = [element.text or "" for element in job.iter("predecessor_jobs")]
        held = f"it waits for {', '.join(awaited)}" if awaited else f"held: qrls {job_id} lets it go"
        reasons.append(held)
    return Status(State.PENDING, "; ".join(reasons))


def _ended(records: list[Record]) -> Status:
    """The records of one job: of its parallel tasks and earlier runs, then its own, which counts."""
    own = [record for record in records if record.get("pe_taskid", "NONE") == "NONE"] or records
    record = own[-1]
    state, meaning = _end(record)
    code, _, words = record.get("failed", "").partition(":")
    failed = f"failed {code.strip()} ({words.strip()})" if words else f"exit status {_number(record, 'exit_status')}"
    hosts = dict.fromkeys(r["hostname"] for r in [record, *records] if "hostname" in r)
    return Status(state, f"Grid Engine's accounting says {failed}{meaning and f': {meaning}'}", tuple(hosts))


def _end(record: Record) -> tuple[State, str]:
    """The end that a record tells of, and what it means in words."""
    code, status = _number(record, "failed"), _number(record, "exit_status")
    if code == LIMIT:
        return _limit(record)
    if (by := record.get("deleted_by", "NONE")) != "NONE":  # Univa and Altair
        return State.CANCELLED, f"deleted by {by}"
    if code in MEANS:
        return MEANS[code]
    if status > 128 and code in {*RAN, SIGNALLED}:
        return State.FAILED, _signal(status - 128)
    if code in RAN:
        return (State.FAILED if status else State.COMPLETED), f"exit status {status}" if code else ""
    return State.FAILED, ""


def _signal(number: int) -> str:
    name = Signals(number).name if number in Signals._value2member_map_ else f"signal {number}"
    return f"{name}, by qdel or for want of memory: the record does not tell" if name == "SIGKILL" else name


def _limit(record: Record) -> tuple[State, str]:
    """Which limit a job reached: one code stands for time and memory; what was asked for and used tells them apart."""
    asked = dict(re.findall(r"\b(h_rt|h_vmem)=([\w.]+)", record.get("category", "")))
    ran_s = _number(record, "ru_wallclock")
    if "h_vmem" in asked and ran_s + PROLOG_S < float(asked.get("h_rt", "inf")):
        return State.OOM, f"asked for h_vmem={asked['h_vmem']} a slot, used {record.get('maxvmem', '?')}"
    return State.TIMEOUT, f"it ran for {ran_s} s"


def _number(record: Record, key: str) -> int:
    """The whole number that a value begins with, as in '137 (Killed)'; -1 without one."""
    match = re.match(r"\d+", record.get(key, ""))
    return int(match[0]) if match else -1
