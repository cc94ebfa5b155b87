"""Grid Engine: Son of Grid Engine 8.1.9, and the additional record fields of Univa's and Altair's."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.states import Status
from torusrun.orchestrator.schedulers.gridengine import facts, states
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
from torusrun.orchestrator.schedulers.words import clock, counts, directives, listed_hosts, printed_id, user_name

LONGEST_BYTES = 2000  # of a directive; qsub reads 2048 (basis_types.h, MAX_STRING_SIZE)
# Variables of the login environment that a job would lack; the script sets PYTHONPATH and the site's variables.
HANDED_ON = ("PATH", "LD_LIBRARY_PATH")
NO_ESCAPE = "Grid Engine's directives cannot contain a quote or a backslash"
MEANS_SOMETHING = {'"': NO_ESCAPE, "'": NO_ESCAPE, "\\": NO_ESCAPE, "#": "Grid Engine's directives end there"}


def _remote(host: str, command: str) -> list[str]:
    return ["qrsh", "-inherit", "-nostdin", host, command]  # a shell of that host reads the command


class GridEngine(Scheduler):
    """Grid Engine's commands; queries are about the jobs of `user`."""

    name = "gridengine"
    variables = Variables(
        "JOB_ID",
        task="SGE_TASK_ID",
        first_task=1,
        scratch=("SGE_LOCALDIR",),
        cluster=("SGE_ROOT", "SGE_CELL"),
        host="HOSTNAME",
    )
    traits = Traits(
        cancels_many=True,
        has_arrays=True,
        cannot_exclude="",
        outlives_hosts=True,
        says=Traits.says - {"gpu_type"} | {"constraint", "reservation", "exclusive", "licenses"},
        instead={
            "qos": "a site of Grid Engine gives quality of service by a queue, a project or -p: write 'queue', "
            "'account', or request.options: ['-p -100']",
            "gpu_type": "write the site's own resource, as in request.constraint: gpu_type=v100",
        },
    )
    script = JobScript(sends_output=True)  # blanks, commas, colons and dollars in a path are special for Grid Engine
    cluster = ClusterQueries(("qconf", "qhost"), facts.describe, facts.SWITCHES, facts.hosts_of)
    # qrsh -inherit also works on a login node, but gives no terminal, and Grid Engine ends a job whose qrsh is killed.
    reach = Reach(remote_command=_remote)

    def __init__(self, user: str | None = None) -> None:
        self._named = user

    @property
    def _user(self) -> str:
        return self._named or user_name()

    def directives(self, request: Request) -> list[str]:
        options = [
            f"-N {self._word('name', request.called)}",
            *(request.ask or _one_slot(request)),
            f"-l h_rt={clock(request.time_s)}",
            "-S /bin/bash",  # else the queue's shell reads the script, in spite of its first line
            "-j y",
            "-o /dev/null",  # the script itself redirects its output
            "-notify",  # SIGUSR2 before SIGKILL, from qdel and at the time limit, with the queue's `notify` between
            # A rerun would run under the same attempt; `resume` makes a new attempt. The task of an array that loses
            # its first host must not keep the others waiting.
            "-r y" if request.array else "-r n",
        ]
        if request.memory_bytes:
            # Per rank, as if a rank were a slot: a site may count mem_free per slot. Not h_vmem, which limits the
            # address space: GPU programs reserve very much of it.
            options.append(f"-l mem_free={math.ceil(request.memory_bytes / request.ranks_per_node / 2**20)}M")
        # Resources by their usual names: a site may have others, and qsub refuses those that it does not know.
        options += [f"-l {self._word('request.constraint', request.constraint)}"] if request.constraint else []
        options += [f"-ar {self._word('request.reservation', request.reservation)}"] if request.reservation else []
        options += ["-l exclusive=true"] if request.exclusive else []
        options += [f"-l {name}={number}" for name, number in counts(request.licenses)]
        options += [f"-q {self._word('queue', request.queue)}"] if request.queue else []
        options += [f"-P {self._word('account', request.account)}"] if request.account else []
        if awaited := (*request.after, *request.after_any):  # -hold_jid waits for any end of a job
            options.append(f"-hold_jid {','.join(awaited)}")
        options += [f"-l hostname=!({'|'.join(request.exclude)})"] if request.exclude else []
        if request.array:
            options.append(f"-t 1-{request.array}")
            options += [f"-tc {request.parallel}"] if request.parallel else []
        for option in (*request.ask, *request.extra):
            if "#" in option:
                raise UserError(f"{option!r}: Grid Engine's directives end at a '#'; write it in 'submit_args'")
        return directives("#$", [*options, *request.extra], LONGEST_BYTES)

    def refuses(self, value: str) -> str | None:
        wrong = next((char for char in value if char in MEANS_SOMETHING), None)
        return wrong and f"holds {wrong!r}: {MEANS_SOMETHING[wrong]}"

    def _word(self, key: str, value: str) -> str:
        """A value as one word: in quotes if it has blanks. No word can contain a quote."""
        return f'"{value}"' if re.search(r"\s", self.word(key, value)) else value

    def submit_command(self, script: Path, request: Request) -> list[str]:
        # By name: -V would store the whole login environment, with keys and tokens, and qstat -j would show it.
        return ["qsub", "-terse", "-v", ",".join(HANDED_ON), *request.submit_args, str(script)]

    def in_turn_args(self, name: str, before: str) -> list[str]:
        return ["-N", name, "-hold_jid", before]

    def ask_command(self, request: Request) -> list[str] | None:
        # -w calls no JSV of the server, and that may be what translates a site's resource for nodes (ABCI's rt_F).
        translated = any(word.startswith("-l") for word in request.ask)
        return None if translated else ["qsub", "-w", "v", *request.submit_args]

    def room_command(self, request: Request) -> list[str]:
        return ["qsub", "-w", "p", *request.submit_args]

    def job_id(self, stdout: str) -> str:
        # An array is 20.1-3:1. A site's own qsub may leave out -terse.
        job = printed_id(stdout, r"Your job(?:-array)? (\d+)\b.* has been submitted", r"(\d+)(?:\.\d+-\d+:\d+)?")
        if not job:
            raise SiteError(f"qsub did not print a job id but {stdout!r}; see qstat for whether it was submitted")
        return job

    def task_id(self, job_id: str, index: int) -> str:
        return f"{job_id}.{index + 1}"

    def awaitable(self, job_id: str) -> str:
        return job_id.partition(".")[0]  # -hold_jid takes '7.3' for the name of a job

    def cancel_tasks_command(self, job_id: str, first: int, last: int) -> list[str]:
        return ["qdel", job_id, "-t", f"{first + 1}-{last + 1}"]

    def status_query(self, job_ids: Sequence[str]) -> Query[dict[str, Status]]:
        # -f: by host, with its state (-ne: those in use); -r: the jobs that a job waits for; -g d: every task of an
        # array. -g t would list a job's hosts as well, but in a row for every slot.
        return Query(["qstat", "-u", self._user, "-xml", "-f", "-ne", "-r", "-g", "d"], states.queued)

    def accounting_query(self, job_ids: Sequence[str]) -> Query[dict[str, Status]]:
        # qacct takes one job or all (-j alone). -d would leave out jobs that lost their host, as they have no times.
        jobs = {job_id.partition(".")[0] for job_id in job_ids}
        return Query(["qacct", "-o", self._user, "-j", *(jobs if len(jobs) == 1 else ())], states.recorded)

    def find_query(self, token: str) -> Query[list[str]]:
        return Query(["qstat", "-u", self._user, "-xml"], partial(states.called, name=token))

    def cancel_command(self, job_id: str) -> list[str]:
        return ["qdel", job_id]

    def after_loss_command(self, job_id: str, lost: int) -> list[str]:
        # qdel waits for the host. So the task stays, and beside all lost tasks one more may run.
        return ["qalter", "-tc", str(lost + 1), job_id.partition(".")[0]]

    def hosts(self, environment: Mapping[str, str], this_host: str) -> list[str]:
        if "JOB_ID" not in environment:
            raise SiteError("JOB_ID is not set: this is not inside a Grid Engine job")
        path = environment.get("PE_HOSTFILE") or environment.get("SGE_JOB_HOSTLIST")
        return listed_hosts(path) if path else [this_host]  # without a parallel environment there is no list


def _one_slot(request: Request) -> tuple[str, ...]:
    """The request for one slot: none. Raises UserError if the job needs more, for which each site has its own words."""
    if request.nodes * request.ranks_per_node * request.cpus_per_rank == 1 and not request.gpus_per_node:
        return ()
    raise UserError(
        "Grid Engine has no standard request for nodes, so the site must define one; write in the site's file, "
        'for a parallel environment (qconf -spl lists them), ask: ["-pe NAME {ranks}"], '
        'or for a resource that stands for nodes, ask: ["-l rt_F={nodes}"]'
    )
