"""PBS Pro and OpenPBS."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.states import Status
from torusrun.orchestrator.schedulers.interface import (
    ClusterQueries,
    JobScript,
    Query,
    Reach,
    Request,
    Scheduler,
    Traits,
    Variables,
)
from torusrun.orchestrator.schedulers.pbs import facts, states, switches
from torusrun.orchestrator.schedulers.words import clock, counts, directives, listed_hosts, printed_id, user_name

CONSTRAINT = r"[A-Za-z_]\w*=[\w.@-]+(:[A-Za-z_]\w*=[\w.@-]+)*"  # resources of a chunk
LONGEST_BYTES = 2000  # of a directive; OpenPBS reads 4095 (cmds.h, MAX_LINE_LEN)
# PBS sets PATH in /etc/profile.d, which some login shells skip. Its folder comes last: its mpiexec starts no ranks.
OWN_COMMANDS = (
    "command -v pbs_tmrsh > /dev/null || "
    'PATH+=":$(. "${PBS_CONF_FILE:-/etc/pbs.conf}" 2> /dev/null && echo "$PBS_EXEC")/bin"'
)
# PBS itself tells a process only the number of its host (PBS_NODENUM), and only the first host has the list.
HOST = "TORUSRUN_HOST"
OWN_HOST = f'export {HOST}="$(head -n 1 "$PBS_NODEFILE" 2> /dev/null)"'
KEPT = (
    'torusrun_kept="$(readlink "/proc/$$/fd/1")"; '
    'if [[ $torusrun_kept == */"$PBS_JOBNAME".o+([0-9.]) ]]; then rm -f -- "$torusrun_kept"; fi'
)


def _remote(host: str, command: str) -> list[str]:
    return ["pbs_tmrsh", host, "/usr/bin/env", f"{HOST}={host}", "/bin/sh", "-c", command]


class PBS(Scheduler):
    """PBS's commands."""

    name = "pbs"
    variables = Variables(
        "PBS_JOBID",
        array="PBS_ARRAY_ID",
        task="PBS_ARRAY_INDEX",
        scratch=("PBS_LOCALDIR",),
        cluster=("PBS_CONF_FILE", "PBS_SERVER", "PBS_DEFAULT"),
        host=HOST,
    )
    traits = Traits(
        cancels_many=True,
        has_arrays=True,
        says=Traits.says | {"constraint", "reservation", "exclusive", "licenses"},
        asked_by=Traits.asked_by | {"memory", "memory_per_rank", "constraint", "exclusive"},
        instead={"qos": "a site of PBS gives quality of service by a queue: write 'queue'"},
        cannot_exclude="PBS has no request that leaves out hosts; if your site has one, write it in the site's 'ask'",
    )
    # PBS keeps a job's output on its node until the end. The script sends it itself, so that users can read it earlier.
    script = JobScript((OWN_COMMANDS, OWN_HOST, KEPT), sends_output=True)
    cluster = ClusterQueries(("pbsnodes",), facts.describe, switches.SWITCHES)
    # pbs_tmrsh asks the MOM of its own host. Few builds of Open MPI support PBS, and few sites allow ssh.
    reach = Reach(remote_command=_remote, for_every_mpi=True)

    def directives(self, request: Request) -> list[str]:
        options = [
            f"-N {self._word('name', request.called)}",
            *(request.ask or _chunks(request)),
            f"-l walltime={clock(request.time_s)}",
            # The script itself sends its output. PBS copies all other files by scp unless a node's MOM has a $usecp for
            # their place, /dev/null too, with -k oed as well, and with -R oe those of a failed job: a minute without
            # an scp that works, in which the job does not end. Those that stay with -k the script removes (KEPT).
            "-j oe",
            "-k oe",
            # A rerun would run under the same attempt; `resume` makes a new attempt. PBS requires `-r y` for arrays.
            "-r y" if request.array else "-r n",
        ]
        # A reservation has a queue of its own. pbs_rsub prints its id, R12.SERVER, and qsub takes only the queue, R12.
        if queue := re.sub(r"^([RSM]\d+)\..*", r"\1", request.reservation or "") or request.queue:
            options.append(f"-q {self._word('request.reservation' if request.reservation else 'queue', queue)}")
        options += [f"-l {name}={number}" for name, number in counts(request.licenses)]
        if request.account:
            options.append(f"-P {self._word('account', request.account)}")
        ends = {"afterok": request.after, "afterany": request.after_any, "after": request.after_begun}
        if awaited := ",".join(f"{end}:{':'.join(jobs)}" for end, jobs in ends.items() if jobs):
            options.append(f"-W depend={awaited}")
        if request.array:
            options.append(f"-J 0-{request.array - 1}" + (f"%{request.parallel}" if request.parallel else ""))
        if request.lives_on:
            options.append("-W tolerate_node_failures=all")
        for option in (*request.ask, *request.extra):
            if option.endswith("\\"):
                raise UserError(f"{option!r}: PBS joins a directive that ends with a backslash with the next line")
        return directives("#PBS", [*options, *request.extra], LONGEST_BYTES)

    def refuses(self, value: str) -> str | None:
        if "\\" in value:
            return "holds a backslash, which PBS removes from a directive"
        both = "holds both kinds of quotes; PBS cannot escape a quote inside quotes"
        return both if {'"', "'"} <= set(value) else None

    def _word(self, key: str, value: str) -> str:
        """A value as one word of a directive, which has quotes but no escapes."""
        if re.fullmatch(r"[A-Za-z0-9_.@%+=:,/-]+", self.word(key, value)):
            return value
        return f"'{value}'" if '"' in value else f'"{value}"'

    def submit_command(self, script: Path, request: Request) -> list[str]:
        # Without -V: OpenPBS 23.06.06 accepts it but passes nothing on (qsub.c, env_array_to_varlist), others pass all.
        return ["qsub", *request.submit_args, str(script)]

    def in_turn_args(self, name: str, before: str) -> list[str]:
        return ["-N", name, "-W", f"depend=afterany:{before}"]

    def job_id(self, stdout: str) -> str:
        job = printed_id(stdout, r"(\d+(?:\[\])?\.[A-Za-z][\w.-]*)", r"(\d+(?:\[\])?\.[\w.-]+)")
        if not job:
            raise SiteError(f"qsub did not print a job id but {stdout!r}; see qstat for whether it was submitted")
        return job

    def task_id(self, job_id: str, index: int) -> str:
        return job_id.replace("[]", f"[{index}]", 1)

    def awaitable(self, job_id: str) -> str:
        return re.sub(r"\[\d+\]", "[]", job_id, count=1)

    def cancel_tasks_command(self, job_id: str, first: int, last: int) -> list[str]:
        tasks = f"[{first}-{last}]" if first < last else f"[{first}]"  # PBS refuses [3-3]
        return ["qdel", job_id.replace("[]", tasks, 1)]

    def status_query(self, job_ids: Sequence[str]) -> Query[dict[str, Status]]:
        # Without -x: with it, a server that keeps no history (the default) reports nothing, not even running jobs.
        return Query(["qstat", "-f", "-w", "-E", *job_ids], states.listed)

    def start_query(self, job_ids: Sequence[str]) -> Query[dict[str, float]]:
        # As `qstat -T` shows them. PBS estimates the first jobs of the queue alone, unless its server estimates more.
        return Query(["qstat", "-f", "-w", "-E", *job_ids], states.starts)

    def accounting_query(self, job_ids: Sequence[str]) -> Query[dict[str, Status]]:
        return Query(["qstat", "-x", "-f", "-w", "-E", *job_ids], states.listed)

    def find_query(self, token: str) -> Query[list[str]]:
        command = ["qselect", "-u", user_name(), "-N", token]  # without -u it lists the jobs of all users
        return Query(command, lambda answer: answer.check("asking PBS for a job by its name").stdout.split())

    def host_query(self, host: str) -> Query[str]:
        return Query(["pbsnodes", host], states.lost)

    def cancel_command(self, job_id: str) -> list[str]:
        return ["qdel", job_id]

    def after_loss_command(self, job_id: str, lost: int) -> list[str]:
        # Without force, qdel asks the first host and the job stays. With it, too, until the server takes the host for
        # down, by default 80 s after its last sign.
        return ["qdel", "-W", "force", job_id]

    def hosts(self, environment: Mapping[str, str], this_host: str) -> list[str]:
        path = environment.get("PBS_NODEFILE")
        if not path:
            raise SiteError("PBS_NODEFILE is not set: this is not inside a PBS job")
        return listed_hosts(path)


def _chunks(request: Request) -> tuple[str, ...]:
    """The request of one chunk per node, each on its own host."""
    chunk = f"{request.nodes}:ncpus={request.ranks_per_node * request.cpus_per_rank}:mpiprocs={request.ranks_per_node}"
    if request.gpus_per_node:
        chunk += f":ngpus={request.gpus_per_node}"
        chunk += f":gpu_type={request.gpu_type}" if request.gpu_type else ""
    if request.memory_bytes:
        chunk += f":mem={math.ceil(request.memory_bytes / 2**20)}mb"
    if request.constraint:
        if not re.fullmatch(CONSTRAINT, request.constraint):
            wrong = f"'request.constraint': {request.constraint!r} is no resource of PBS's chunks"
            raise UserError(f"{wrong}; write NAME=VALUE, or several with ':' between them")
        chunk += f":{request.constraint}"
    placed = any(re.match(r"-l\s+place=", option) for option in request.extra)  # PBS refuses a second `place`
    sharing = {True: ":excl", False: ":shared", None: ""}[request.exclusive]  # without, as each node's `sharing` says
    return (f"-l select={chunk}", *(() if placed else (f"-l place=scatter{sharing}",)))
