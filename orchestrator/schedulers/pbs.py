"""PBS Pro and OpenPBS.

JSON is exact where it is valid, but a value such as `.5` or `nan` makes OpenPBS 23.06 print what is no JSON, and a
later development version tells only the first of several jobs in it. What it does not tell is asked for as text.
"""

from __future__ import annotations

import json
import math
import os
import pwd
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import Signals
from typing import Any

from orchestrator.errors import SiteError, UserError
from orchestrator.process import Finished
from orchestrator.schedulers.seam import Request, Scheduler, clock, directives, listed_hosts
from orchestrator.states import State, Status

MOST_NAMED = 50
LONGEST_BYTES = 2000  # of a directive; OpenPBS reads 4095 (cmds.h, MAX_LINE_LEN)
UNKNOWN_JOB, FINISHED_JOB = 153, 35  # pbs_errno & 255: of some job asked about, while the others are told
NO_HISTORY = "not configured to maintain job history"

WAITING = {"Q": "", "T": "being moved to another server", "W": "it waits for its time, or for its files"}
GOING_ON = {
    "R": "",
    "B": "",
    "E": "ending",
    "S": "suspended",
    "U": "suspended: its node is in use by its owner",
}
HELD_BY = {"u": "its user", "o": "an operator", "s": "the system", "p": "a bad password"}

# Negative exit statuses are the server's own: src/include/job.h of OpenPBS, JOB_EXEC_...
SERVERS_WORD = {
    -1: (State.FAILED, "it could not be started (its first host's log says why)"),
    -2: (State.FAILED, "it could not be started (its first host's log says why)"),
    -3: (State.FAILED, "it could not be started, and was to be tried again"),
    -4: (State.NODE_FAIL, "the daemon of its node was started anew"),
    -5: (State.NODE_FAIL, "the daemon of its node was started anew"),
    -6: (State.NODE_FAIL, "the daemon of its node was started anew"),
    -10: (State.FAILED, "its user is not known on its node"),
    -14: (State.NODE_FAIL, "a node other than its first was lost"),
    -17: (State.FAILED, "a hook of the site refused it"),
    -19: (State.CANCELLED, "a hook of the site deleted it"),
    -20: (State.NODE_FAIL, "its first node was lost"),
    -24: (State.FAILED, "it used more processors than it had asked for"),
    -25: (State.FAILED, "it used more processors than it had asked for"),
    -26: (State.OOM, "it used more virtual memory than it had asked for"),
    -27: (State.OOM, "it used more memory than it had asked for"),
    -28: (State.TIMEOUT, "it used more processor time than it had asked for"),
    -29: (State.TIMEOUT, "it reached its time limit"),
}

Attributes = Mapping[str, Any]


class PBS(Scheduler):
    """PBS's commands and their output."""

    name = "pbs"
    template = "job/pbs.sh.j2"
    job_variable = "PBS_JOBID"
    lends_shell = True  # few builds of Open MPI know PBS, and few sites let ssh in

    def directives(self, request: Request) -> list[str]:
        options = [
            f"-N {self._word('name', request.name)}",
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
        if request.after:
            options.append(f"-W depend=afterok:{':'.join(request.after)}")
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
        return ["qstat", "-f", "-F", "json", *_few(job_ids)]

    def parse_status(self, said: Finished) -> dict[str, Status]:
        _checked(said)
        try:
            jobs = json.loads(said.stdout).get("Jobs", {})
        except ValueError:
            return {}
        return {job_id: _status(attributes) for job_id, attributes in jobs.items()}

    def accounting_command(self, job_ids: Sequence[str]) -> list[str]:
        return ["qstat", "-x", "-f", *_few(job_ids)]

    def parse_accounting(self, said: Finished) -> dict[str, Status]:
        _checked(said)
        jobs = re.split(r"^Job Id: ", said.stdout.replace("\n\t", ""), flags=re.MULTILINE)[1:]
        return {text.partition("\n")[0].strip(): _status(_attributes(text)) for text in jobs}

    def named_command(self, name: str) -> list[str]:
        return ["qselect", "-u", _user(), "-N", name]  # without -u it tells everybody's

    def parse_named(self, said: Finished, name: str) -> list[str]:
        return said.check("asking PBS for a job by its name").stdout.split()

    def cancel_command(self, job_id: str) -> list[str]:
        return ["qdel", job_id]

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


def _few(job_ids: Sequence[str]) -> Sequence[str]:
    """The jobs to name to qstat; none means all that the server has, of everybody, which is one answer.

    qstat opens a connection for each job that it is named, from one of a host's few privileged ports: with 50 it takes
    0.4 s, with 200 it hangs, while all 1,829 jobs of a server take 0.3 s (OpenPBS 23.06.06).
    """
    return job_ids if len(job_ids) <= MOST_NAMED else ()


def _chunks(request: Request) -> tuple[str, ...]:
    """One chunk per node, each on a host of its own."""
    chunk = f"{request.nodes}:ncpus={request.ranks_per_node * request.cpus_per_rank}:mpiprocs={request.ranks_per_node}"
    if request.gpus_per_node:
        chunk += f":ngpus={request.gpus_per_node}"
    if request.memory_bytes:
        chunk += f":mem={math.ceil(request.memory_bytes / 2**20)}mb"
    return (f"-l select={chunk}", "-l place=scatter")


def _checked(said: Finished) -> None:
    """Raises SiteError unless PBS answered; that it knows no such job, or keeps no ended ones, is an answer."""
    answered = said.exit_code in (UNKNOWN_JOB, FINISHED_JOB) or NO_HISTORY in said.stderr
    if not answered:
        said.check("asking PBS for the states of jobs")


def _attributes(text: str) -> dict[str, str]:
    """The attributes of one job of `qstat -f`, after its lines have been joined."""
    pairs = (line.strip().partition(" = ") for line in text.splitlines()[1:])
    return {key: value for key, _, value in pairs if key}


def _status(job: Attributes) -> Status:
    letter, comment = str(job.get("job_state", "")), str(job.get("comment", ""))
    hosts = _hosts(str(job.get("exec_host", "")))
    if letter in WAITING:
        never = "; as it is, it will not start" if comment.startswith("Can Never Run") else ""
        return Status(State.PENDING, (comment or WAITING[letter]) + never)
    if letter == "H":
        return Status(State.PENDING, _held(job))
    if letter in GOING_ON:
        return Status(State.RUNNING, GOING_ON[letter], hosts)
    if letter in ("F", "X"):  # X: a task of an array that still goes on
        return _ended(job, comment, hosts)
    if letter == "M":
        return Status(State.UNKNOWN, f"PBS has moved it to another server, which has to be asked: {comment}")
    return Status(State.UNKNOWN, f"PBS says {letter!r}, which this torusrun does not know")


def _held(job: Attributes) -> str:
    holders = [HELD_BY.get(letter, letter) for letter in str(job.get("Hold_Types", ""))]
    if job.get("depend") and "s" in str(job.get("Hold_Types", "")):
        return f"it waits for other jobs ({job['depend']})"
    return f"held by {' and '.join(holders)}; qrls lets it go"


def _ended(job: Attributes, comment: str, hosts: tuple[str, ...]) -> Status:
    """The end of a job. Its exit status counts now; in a job that runs again an old one would still stand."""
    if "Exit_status" not in job:
        why = f"dropped by its dependency ({job['depend']})" if job.get("depend") else "deleted before it started"
        return Status(State.CANCELLED, f"{why}: it never ran")
    code = int(job["Exit_status"])
    by = re.search(r"terminated by (\S+)", comment)
    if by:
        return Status(State.CANCELLED, f"deleted by {_who(by[1], str(job.get('Job_Owner', '')))}", hosts)
    if code in SERVERS_WORD:
        state, words = SERVERS_WORD[code]
        return Status(state, f"PBS says that {words} (exit status {code})", hosts)
    if code == 0:
        return Status(State.COMPLETED, "", hosts)
    if code < 0:
        return Status(State.FAILED, f"PBS ended it for a reason of its own (exit status {code}): {comment}", hosts)
    return Status(State.FAILED, f"PBS says {_exit(code)}", hosts)


def _exit(code: int) -> str:
    """An exit status in words: 256 and a signal for the job's own shell, 128 and a signal for a program in it."""
    number = code - 256 if code > 256 else code - 128
    if code <= 128 or number not in Signals._value2member_map_:
        return f"exit code {code}"
    whose = "its shell" if code > 256 else "a program in it"
    return f"that {whose} was ended by {Signals(number).name} (exit status {code})"


def _who(name: str, owner: str) -> str:
    return f"its user, {name}" if name == owner else f"{name}, who is not its user"


def _hosts(exec_host: str) -> tuple[str, ...]:
    """'n1/0*4+n2/0*4' as n1, n2."""
    return tuple(dict.fromkeys(part.partition("/")[0] for part in exec_host.split("+") if part))
