"""Grid Engine: Son of Grid Engine 8.1.9, and Univa's and Altair's where their records say more."""

from __future__ import annotations

import getpass
import math
import re
import shlex
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.base import process
from orchestrator.base.errors import SiteError, UserError
from orchestrator.base.process import Finished
from orchestrator.base.states import State, Status, never_starts
from orchestrator.schedulers.cluster_facts import Ask, ClusterFacts
from orchestrator.schedulers.gridengine import facts, topology
from orchestrator.schedulers.gridengine.records import READ, Record, ended
from orchestrator.schedulers.interface import Request, Scheduler, clock, directives, listed_hosts
from training.counted import counted

LONGEST_BYTES = 2000  # of a directive; qsub reads 2048 (basis_types.h, MAX_STRING_SIZE)
# What a login environment has and a job is not given otherwise; the script sets PYTHONPATH and the site's variables.
HANDED_ON = ("PATH", "LD_LIBRARY_PATH")
NO_ESCAPE = "Grid Engine's directives have no way to write a quote or a backslash"
MEANS_SOMETHING = {'"': NO_ESCAPE, "'": NO_ESCAPE, "\\": NO_ESCAPE, "#": "Grid Engine's directives end there"}
# The letters that qstat makes its states of (sge_status(5)), and what those say that are not ordinary.
LETTERS = set("dEhqrRsSTtw")
WORDS = {
    "d": "being deleted",
    "s": "suspended by qmod: its processes are stopped until `qmod -usj` resumes them",
    "S": "suspended with its queue: its processes are stopped",
    "T": "suspended for the load of its host: its processes are stopped",
    "R": "rescheduled",
    "t": "being sent to its hosts",
}


class GridEngine(Scheduler):
    """Grid Engine's commands and their output; `user` is whose jobs are asked about."""

    name = "gridengine"
    tells_all_jobs = True
    programs = ("qconf", "qhost")
    switches = topology.SWITCHES
    own_output = True  # blanks, commas, colons and dollars in a path have a meaning to Grid Engine
    job_variable = "JOB_ID"
    cancels_many = True
    scratch_variables = ("SGE_LOCALDIR",)
    told_variables = ("JOB_ID", "JOB_NAME", "SGE_TASK_ID", "QUEUE", "SGE_O_HOST", "SGE_O_WORKDIR")
    cannot_exclude = ""
    shell_has_terminal = False  # qrsh -inherit takes -pty y, and yet there is none over there

    def __init__(self, user: str | None = None) -> None:
        self._user = user or getpass.getuser()

    def directives(self, request: Request) -> list[str]:
        options = [
            f"-N {self._word('name', request.called)}",
            *(request.ask or _one_slot(request)),
            f"-l h_rt={clock(request.time_s)}",
            "-S /bin/bash",  # else the queue's shell reads the script, whatever its first line says
            "-j y",
            "-o /dev/null",  # the script itself sends its output where it belongs
            "-notify",  # SIGUSR2 before SIGKILL, from qdel and at the time limit, with the queue's `notify` between
            "-r n",  # a rerun would run under the same attempt; `resume` makes a new one
        ]
        if request.memory_bytes:
            # For a rank as if it were a slot: a site may have made mem_free a thing that each slot takes. Not h_vmem,
            # which limits addresses, and programs for GPUs reserve those without measure.
            options.append(f"-l mem_free={math.ceil(request.memory_bytes / request.ranks_per_node / 2**20)}M")
        if request.queue:
            options.append(f"-q {self._word('queue', request.queue)}")
        if request.account:
            options.append(f"-P {self._word('account', request.account)}")
        if awaited := (*request.after, *request.after_any):  # -hold_jid knows no other condition than an end
            options.append(f"-hold_jid {','.join(awaited)}")
        if request.exclude:
            options.append(f"-l hostname=!({'|'.join(request.exclude)})")
        if request.array:
            options.append(f"-t 1-{request.array}")
            options += [f"-tc {request.parallel}"] if request.parallel else []
        for option in (*request.ask, *request.extra):
            if "#" in option:
                raise UserError(f"{option!r}: Grid Engine's directives end at a '#'; write it in 'submit_args'")
        return directives("#$", [*options, *request.extra], LONGEST_BYTES)

    def refuses(self, value: str) -> str | None:
        found = next((char for char in value if char in MEANS_SOMETHING), None)
        return found and f"holds {found!r}: {MEANS_SOMETHING[found]}"

    def _word(self, key: str, value: str) -> str:
        """A value as one word: quotes hold blanks together, but nothing can hold a quote."""
        return f'"{value}"' if re.search(r"\s", self.word(key, value)) else value

    def submit_command(self, script: Path, request: Request) -> list[str]:
        # By name, since -V would store all of the login's environment, keys and tokens too, where qstat -j shows it.
        return ["qsub", "-terse", "-v", ",".join(HANDED_ON), *request.submit_args, str(script)]

    def ask_command(self, request: Request) -> list[str]:
        return ["qsub", "-w", "v", *request.submit_args]

    def job_id(self, stdout: str) -> str:
        ids = re.findall(r"^(\d+)(?:\.[\d:-]+)?\s*$", stdout, re.MULTILINE)  # an array is 20.1-3:1
        if not ids:
            raise SiteError(f"qsub did not print a job id but {stdout!r}; see qstat for whether it was submitted")
        return str(ids[-1])

    def task_id(self, job_id: str, index: int) -> str:
        return f"{job_id}.{index + 1}"

    def status_command(self, job_ids: Sequence[str]) -> list[str]:
        # -f: by host, with its state (-ne: those in use); -r: what a job waits for; -g d: every task of an array.
        # -g t would tell a job's hosts as well, but in a row for every slot.
        return ["qstat", "-u", self._user, "-xml", "-f", "-ne", "-r", "-g", "d"]

    def parse_status(self, said: Finished) -> dict[str, Status]:
        said.check("asking Grid Engine for the states of jobs")
        try:
            root = ET.fromstring(said.stdout)
        except ET.ParseError as error:
            raise SiteError(f"asking Grid Engine for the states of jobs: its XML cannot be read: {error}") from None
        jobs = {_id(job): job for job in root.iter("job_list")}
        hosts: dict[str, dict[str, bool]] = {job_id: {} for job_id in jobs}
        for queue in root.iter("Queue-List"):
            host, silent = queue.findtext("name", "").rpartition("@")[2], "u" in queue.findtext("state", "")
            for job in queue.iter("job_list"):
                hosts[_id(job)][host] = silent
        return {job_id: _status(job, hosts[job_id]) for job_id, job in jobs.items()}

    def accounting_command(self, job_ids: Sequence[str]) -> list[str]:
        # qacct takes one job or all (-j alone); -d would leave out jobs that lost their host, which have no times.
        jobs = {job_id.partition(".")[0] for job_id in job_ids}
        return ["qacct", "-o", self._user, "-j", *(jobs if len(jobs) == 1 else ())]

    def parse_accounting(self, said: Finished) -> dict[str, Status]:
        # Before the first job ended there is no accounting file, and a job that is not in it is an error to qacct.
        if said.exit_code == 1 and re.search(r"accounting: No such file|job id \d+ not found", said.stderr):
            return {}
        said.check("asking Grid Engine's accounting")
        records: dict[str, list[Record]] = {}
        for text in re.split(r"^=+\n", said.stdout, flags=re.MULTILINE):
            pairs = (line.partition(" ") for line in text.splitlines())
            record = {key: value.strip() for key, _, value in pairs if key in READ}
            if "jobnumber" in record:
                records.setdefault(_key(record["jobnumber"], record.get("taskid")), []).append(record)
        return {key: ended(found) for key, found in records.items()}

    def find_command(self, token: str) -> list[str]:
        return ["qstat", "-u", self._user, "-xml"]

    def parse_found(self, said: Finished, token: str) -> list[str]:
        said.check("asking Grid Engine for a job by its name")
        try:
            jobs = ET.fromstring(said.stdout).iter("job_list")
        except ET.ParseError as error:
            raise SiteError(f"asking Grid Engine for a job by its name: its XML cannot be read: {error}") from None
        return [job.findtext("JB_job_number", "") for job in jobs if job.findtext("JB_name") == token]

    def cancel_command(self, job_id: str) -> list[str]:
        return ["qdel", job_id]

    def hosts(self, environment: Mapping[str, str], this_host: str) -> list[str]:
        if "JOB_ID" not in environment:
            raise SiteError("JOB_ID is not set: this is not inside a Grid Engine job")
        path = environment.get("PE_HOSTFILE") or environment.get("SGE_JOB_HOSTLIST")
        return listed_hosts(path) if path else [this_host]  # without a parallel environment there is no list

    def shortfall(self, environment: Mapping[str, str], cpus: int) -> str:
        slots, hosts = environment.get("NSLOTS", ""), environment.get("NHOSTS", "")
        if not (slots.isdigit() and hosts.isdigit()) or int(slots) == int(hosts) or int(slots) >= cpus:
            return ""  # one slot on each host stands for a whole one
        return (
            f"Grid Engine gave {counted(int(slots), 'slot')}, and the ranks use {counted(cpus, 'core')}: unless a slot "
            "is more than a core here, write {cpus} in the site's 'ask', or lower cpus_per_rank"
        )

    def cluster_facts(self, ask: Ask) -> ClusterFacts:
        return facts.describe(ask)

    def remote_command(self, host: str, command: str) -> list[str]:
        return ["qrsh", "-inherit", "-nostdin", host, command]  # which a shell over there reads

    def shell_command(
        self, job_id: str, host: str, argv: Sequence[str], *, terminal: bool
    ) -> tuple[list[str], dict[str, str]]:
        number, _, task = job_id.partition(".")
        variables = {"JOB_ID": number, "SGE_TASK_ID": task or "undefined"}
        how = "terminal" if terminal else "command"
        between = process.module(sys.executable, "orchestrator.schedulers.gridengine.shell", how, host)
        return [*between, shlex.join(argv)], variables


def _one_slot(request: Request) -> tuple[str, ...]:
    """A job's own words for one slot: none. Raises UserError where it needs more, which sites give in their own way."""
    if request.nodes * request.ranks_per_node * request.cpus_per_rank == 1 and not request.gpus_per_node:
        return ()
    raise UserError(
        "Grid Engine has no common way to ask for nodes, so the site has to say its own; write in the site's file, "
        'for a parallel environment (qconf -spl lists them), ask: ["-pe NAME {ranks}"], '
        'or for a resource that stands for nodes, ask: ["-l rt_F={nodes}"]'
    )


def _key(job: str, task: str | None) -> str:
    """The id of a job, or of a task of an array."""
    return f"{job}.{task}" if task and task.isdigit() else job


def _id(job: ET.Element) -> str:
    return _key(job.findtext("JB_job_number", ""), job.findtext("tasks"))


def _status(job: ET.Element, hosts: Mapping[str, bool]) -> Status:
    """One job of qstat's XML, or one task; `hosts` are the ones it has, and whether each is silent."""
    letters, job_id = job.findtext("state", ""), job.findtext("JB_job_number", "")
    if not letters or set(letters) - LETTERS:
        return Status(State.UNKNOWN, f"Grid Engine says {letters!r}, which this torusrun does not know")
    reasons = [WORDS[letter] for letter in letters if letter in WORDS]
    if {"R", "t"} <= set(letters):  # it may hang there for long, and no process of it is at work
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
