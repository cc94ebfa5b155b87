"""PBS Pro and OpenPBS.

States are read from one form of qstat's answer: `-f -w`, one line for each attribute, its line breaks written as `\\n`.
JSON is invalid for values such as `.5` and `nan`, and plain text prints line breaks in a job's variables as they are:
anybody's job can write lines that look like another's. `-E` asks for all named jobs at once. Both came in PBS 18.
"""

from __future__ import annotations

import contextlib
import grp
import math
import os
import pwd
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.base.errors import SiteError, UserError
from orchestrator.base.process import Finished
from orchestrator.base.states import State, Status, never_starts
from orchestrator.schedulers.cluster_facts import Ask, ClusterFacts
from orchestrator.schedulers.interface import Request, Scheduler, clock, directives, listed_hosts
from orchestrator.schedulers.pbs import facts, topology
from orchestrator.schedulers.pbs.ends import exit_words, server_ended
from orchestrator.schedulers.pbs.topology import records

LONGEST_BYTES = 2000  # of a directive; OpenPBS reads 4095 (cmds.h, MAX_LINE_LEN)
UNKNOWN_JOB, FINISHED_JOB = 153, 35  # pbs_errno & 255: of some job asked about, while the others are told
NO_HISTORY = "not configured to maintain job history"
DELETED = "91"  # substate of a job that somebody deleted: src/include/job.h of OpenPBS, JOB_SUBSTATE_TERMINATED

WAITING = {"Q": "", "T": "being moved to another server", "W": "it waits for its time, or for its files"}
GOING_ON = {
    "R": "",
    "B": "",
    "E": "ending",
    "S": "suspended",
    "U": "suspended: its node is in use by its owner",
}
HELD_BY = {"u": "its user", "o": "an operator", "s": "the system", "p": "a bad password"}

Attributes = Mapping[str, str]

# PBS sets PATH by /etc/profile.d, which some login shells skip. Its folder comes last: its mpiexec starts no ranks.
OWN_COMMANDS = (
    "command -v pbs_tmrsh > /dev/null || "
    'PATH+=":$(. "${PBS_CONF_FILE:-/etc/pbs.conf}" 2> /dev/null && echo "$PBS_EXEC")/bin"'
)


class PBS(Scheduler):
    """PBS's commands and their output."""

    name = "pbs"
    programs = ("pbsnodes",)
    switches = topology.SWITCHES
    head = (OWN_COMMANDS,)
    own_output = True  # which PBS keeps on the job's node until the end: so it can be read while the job runs
    job_variable = "PBS_JOBID"
    cancels_many = True
    scratch_variables = ("PBS_LOCALDIR",)
    told_variables = (
        "PBS_JOBID", "PBS_JOBNAME", "PBS_ARRAY_ID", "PBS_ARRAY_INDEX", "PBS_QUEUE", "PBS_O_HOST", "PBS_O_WORKDIR",
    )  # fmt: skip
    cannot_exclude = "PBS knows no request for any hosts but some; write what your site has for it in the site's 'ask'"
    shell_from_inside = True  # pbs_tmrsh asks the MOM of its own host, as a process of the job
    lends_shell = True  # few builds of Open MPI know PBS, and few sites let ssh in

    def directives(self, request: Request) -> list[str]:
        options = [
            f"-N {self._word('name', request.called)}",
            *(request.ask or _chunks(request)),
            f"-l walltime={clock(request.time_s)}",
            "-o /dev/null",
            "-e /dev/null",
            # A rerun would run under the same attempt; `resume` makes a new one. PBS has no arrays that are not rerun.
            "-r y" if request.array else "-r n",
        ]
        if request.queue:
            options.append(f"-q {self._word('queue', request.queue)}")
        if request.account:
            options.append(f"-P {self._word('account', request.account)}")
        ends = {"afterok": request.after, "afterany": request.after_any}
        if awaited := ",".join(f"{end}:{':'.join(jobs)}" for end, jobs in ends.items() if jobs):
            options.append(f"-W depend={awaited}")
        if request.array:
            options.append(f"-J 0-{request.array - 1}" + (f"%{request.parallel}" if request.parallel else ""))
        for option in (*request.ask, *request.extra):
            if option.endswith("\\"):
                raise UserError(f"{option!r}: PBS reads a directive that ends with a backslash on into the next line")
        return directives("#PBS", [*options, *request.extra], LONGEST_BYTES)

    def refuses(self, value: str) -> str | None:
        if "\\" in value:
            return "holds a backslash, which PBS takes away from a directive"
        return (
            "holds both kinds of quotes; PBS has no way to write a quote in quotes"
            if {'"', "'"} <= set(value)
            else None
        )

    def _word(self, key: str, value: str) -> str:
        """A value as one word of a directive, which knows quotes but no escapes."""
        if re.fullmatch(r"[A-Za-z0-9_.@%+=:,/-]+", self.word(key, value)):
            return value
        return f"'{value}'" if '"' in value else f'"{value}"'

    def submit_command(self, script: Path, request: Request) -> list[str]:
        # Without -V: OpenPBS 23.06.06 takes it and hands nothing on (qsub.c, env_array_to_varlist), others everything.
        return ["qsub", *request.submit_args, str(script)]

    def job_id(self, stdout: str) -> str:
        match = re.search(r"^(\d+(?:\[\])?\.[\w.-]+)\s*$", stdout, re.MULTILINE)
        if not match:
            raise SiteError(f"qsub did not print a job id but {stdout!r}; see qstat for whether it was submitted")
        return match[1]

    def task_id(self, job_id: str, index: int) -> str:
        return job_id.replace("[]", f"[{index}]", 1)

    def status_command(self, job_ids: Sequence[str]) -> list[str]:
        # Without -x, for which a server that keeps no history (the default) tells nothing, not even of running jobs.
        return ["qstat", "-f", "-w", "-E", *job_ids]

    def parse_status(self, said: Finished) -> dict[str, Status]:
        _checked(said)
        return {job_id: _status(attributes) for job_id, attributes in records(said.stdout, "Job Id: ").items()}

    def accounting_command(self, job_ids: Sequence[str]) -> list[str]:
        return ["qstat", "-x", "-f", "-w", "-E", *job_ids]

    def parse_accounting(self, said: Finished) -> dict[str, Status]:
        return self.parse_status(said)

    def find_command(self, token: str) -> list[str]:
        return ["qselect", "-u", _user(), "-N", token]  # without -u it tells everybody's

    def parse_found(self, said: Finished, token: str) -> list[str]:
        return said.check("asking PBS for a job by its name").stdout.split()

    def cancel_command(self, job_id: str) -> list[str]:
        return ["qdel", job_id]

    def cluster_facts(self, ask: Ask) -> ClusterFacts:
        return facts.describe(ask, _user(), _groups())

    def hosts(self, environment: Mapping[str, str], this_host: str) -> list[str]:
        path = environment.get("PBS_NODEFILE")
        if not path:
            raise SiteError("PBS_NODEFILE is not set: this is not inside a PBS job")
        return listed_hosts(path)

    def remote_command(self, host: str, command: str) -> list[str]:
        return ["pbs_tmrsh", host, "/bin/sh", "-c", command]


def _user() -> str:
    """Who submits from here, by the name that PBS knows. Raises SiteError where there is no name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        raise SiteError(f"user {os.geteuid()} has no name on this machine, and PBS knows its jobs by one") from None


def _groups() -> list[str]:
    """The names of this user's groups; a group without a name here has none for PBS either."""
    found, user = [], pwd.getpwuid(os.geteuid())
    for number in os.getgrouplist(user.pw_name, user.pw_gid):
        with contextlib.suppress(KeyError):
            found.append(grp.getgrgid(number).gr_name)
    return found


def _chunks(request: Request) -> tuple[str, ...]:
    """One chunk per node, each on a host of its own."""
    chunk = f"{request.nodes}:ncpus={request.ranks_per_node * request.cpus_per_rank}:mpiprocs={request.ranks_per_node}"
    if request.gpus_per_node:
        chunk += f":ngpus={request.gpus_per_node}"
        chunk += f":gpu_type={request.gpu_type}" if request.gpu_type else ""
    if request.memory_bytes:
        chunk += f":mem={math.ceil(request.memory_bytes / 2**20)}mb"
    placed = any(re.match(r"-l\s+place=", option) for option in request.extra)  # PBS refuses a second one
    return (f"-l select={chunk}", *(() if placed else ("-l place=scatter",)))


def _checked(said: Finished) -> None:
    """Raises SiteError unless PBS answered; that it knows no such job, or keeps no ended ones, is an answer."""
    answered = said.exit_code in (UNKNOWN_JOB, FINISHED_JOB) or NO_HISTORY in said.stderr
    if not answered:
        said.check("asking PBS for the states of jobs")


def _status(job: Attributes) -> Status:
    letter, comment = job.get("job_state", ""), _one_line(job.get("comment", ""))
    hosts = _hosts(job.get("exec_host", ""))
    if letter in WAITING:
        if comment.startswith("Can Never Run"):
            return never_starts(comment)
        return Status(State.PENDING, comment or WAITING[letter])
    if letter == "H":
        return _held(job)
    if letter in GOING_ON:
        return Status(State.RUNNING, GOING_ON[letter], hosts)
    if letter in ("F", "X"):  # X: a task of an array that still goes on
        return _task_of_the_past(comment) or _ended(job, comment, hosts)
    if letter == "M":
        return Status(State.UNKNOWN, f"PBS has moved it to another server, which has to be asked: {comment}")
    return Status(State.UNKNOWN, f"PBS says {_one_line(letter)!r}, which this torusrun does not know")


def _held(job: Attributes) -> Status:
    holders = [HELD_BY.get(letter, letter) for letter in _one_line(job.get("Hold_Types", ""))]
    awaited = _awaited(job)
    if awaited and "s" in job.get("Hold_Types", ""):
        return Status(State.PENDING, f"it waits for other jobs ({awaited})", held=True)
    return Status(State.PENDING, f"held by {' and '.join(holders)}; qrls releases it")


def _awaited(job: Attributes) -> str:
    """What the job waits for. In the same list stand those that wait for it, as `beforeok:ID`."""
    listed = _one_line(job.get("depend", "")).split(",")
    return ",".join(part for part in listed if not part.startswith("before"))


def _task_of_the_past(comment: str) -> Status | None:
    """A task whose own record PBS no longer has. What it tells is the array's, exit status included; None for others.

    "Subjob finished" is said of tasks that never ran, too (status_subjob in OpenPBS's stat_job.c).
    """
    return {
        "Subjob finished": Status(State.LOST, "the task is over, and PBS no longer reports how it ended"),
        "Subjob failed": Status(State.FAILED, "PBS says that the task failed, and no longer reports how"),
        "Subjob terminated": Status(
            State.CANCELLED, "PBS says that the task was deleted, and no longer reports by whom"
        ),
    }.get(comment)


def _ended(job: Attributes, comment: str, hosts: tuple[str, ...]) -> Status:
    """The end of a job. Its exit status counts now; in a job that runs again an old one would still stand."""
    if "Exit_status" not in job:
        awaited = _awaited(job) if job.get("substate") != DELETED else ""
        why = f"dropped by its dependency ({awaited})" if awaited else "deleted before it started"
        return Status(State.CANCELLED, f"{why}: it never ran")
    if not re.fullmatch(r"-?\d+", job["Exit_status"]):
        return Status(State.UNKNOWN, f"PBS says exit status {_one_line(job['Exit_status'])!r}, which is no number")
    code = int(job["Exit_status"])
    by = re.search(r"terminated by (\S+)", comment)
    if by:
        return Status(State.CANCELLED, f"deleted by {_who(by[1], job.get('Job_Owner', ''))}", hosts)
    if code < 0:
        return server_ended(code, comment, hosts)
    if code == 0:
        return Status(State.COMPLETED, "", hosts)
    return Status(State.FAILED, f"PBS says {exit_words(code)}", hosts)


def _who(name: str, owner: str) -> str:
    return f"its user, {name}" if name == owner else f"{name}, who is not its user"


def _hosts(exec_host: str) -> tuple[str, ...]:
    """'n1/0*4+n2/0*4' as n1, n2."""
    return tuple(dict.fromkeys(part.partition("/")[0] for part in exec_host.split("+") if part))


def _one_line(value: str) -> str:
    """A value that people wrote, as words of one line: qstat writes a line break as a backslash and an n."""
    return "".join(char if char.isprintable() else " " for char in value.replace("\\n", " ")).strip()
