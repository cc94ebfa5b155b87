"""Slurm, from 20.11 on. It reads only text with fixed fields, since Slurm's JSON changes from release to release."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.states import Status
from torusrun.orchestrator.place.hosts.hostlist import expand
from torusrun.orchestrator.schedulers.interface import (
    ClusterQueries,
    Query,
    Reach,
    Request,
    Scheduler,
    Traits,
    Variables,
)
from torusrun.orchestrator.schedulers.slurm import facts, states
from torusrun.orchestrator.schedulers.words import directives, printed_id

OTHER_CLUSTER = re.compile(r"\s*(-M|--cl(u(s(t(e(rs?)?)?)?)?)?([=\s]|$))")  # getopt_long takes abbreviations, too
# What sbatch prints without --parsable, as a site's own sbatch may, and with it; a federation adds a cluster's name.
IDS = (r"Submitted batch job (\d+)(?: on cluster [\w.-]+)?", r"(\d+)(?:;[\w.-]+)?")
CLUSTER = re.compile(r"^\s*(?:Submitted batch job )?(\d+)(?:;| on cluster )([\w.-]+)\s*$", re.MULTILINE)
LONGEST_BYTES = 8000  # sbatch copies a word into a buffer of 8192 bytes without checking its length (opt.c, 22.05)


def _shell(job_id: str, host: str, argv: Sequence[str], terminal: bool) -> list[str]:
    options = ["--nodes=1", "--ntasks=1", f"--nodelist={host}", "--cpu-bind=none", "--mpi=none", "--quiet"]
    return ["srun", f"--jobid={job_id}", "--overlap", *options, *(["--pty"] if terminal else []), *argv]


def _remote(host: str, command: str) -> list[str]:
    options = ["--nodes=1", "--ntasks=1", f"--nodelist={host}"]
    return ["srun", *options, "--overlap", "--cpu-bind=none", "--mpi=none", "--input=none", "/bin/sh", "-c", command]


class Slurm(Scheduler):
    """Slurm's commands."""

    name = "slurm"
    variables = Variables(
        "SLURM_JOB_ID",
        array="SLURM_ARRAY_JOB_ID",
        task="SLURM_ARRAY_TASK_ID",
        cluster=("SLURM_CONF",),
        host="SLURMD_NODENAME",
        elsewhere=("SLURM_CLUSTERS",),
    )
    traits = Traits(
        cancels_many=True,
        cannot_exclude="",
        has_arrays=True,
        says=Traits.says | {"qos", "constraint", "reservation", "exclusive", "licenses"},
        silent="timed out on send/recv|Zero Bytes were transmitted or received",  # slurm_errno.c
    )
    cluster = ClusterQueries(("sinfo",), facts.describe, facts.SWITCHES, facts.hosts)
    reach = Reach(_shell, _remote)

    def directives(self, request: Request) -> list[str]:
        options = [
            f"--job-name={request.called}",
            f"--nodes={request.nodes}",
            f"--ntasks-per-node={request.ranks_per_node}",
            f"--cpus-per-task={request.cpus_per_rank}",
            f"--time={math.ceil(request.time_s / 60)}",
            f"--output={_literal(request.stdout)}",
            f"--error={_literal(request.stderr)}",
            "--open-mode=append",
            "--no-requeue",  # a requeued job would run again under the same attempt; `resume` makes a new attempt
        ]
        if request.ask:
            options[1:4] = request.ask
        elif request.gpus_per_node:
            kind = f"{request.gpu_type}:" if request.gpu_type else ""
            options.append(f"--gres=gpu:{kind}{request.gpus_per_node}")
        if request.memory_bytes:
            options.append(f"--mem={math.ceil(request.memory_bytes / 2**20)}M")
        if request.queue:
            options.append(f"--partition={self.word('queue', request.queue)}")
        if request.account:
            options.append(f"--account={self.word('account', request.account)}")
        for key in ("qos", "constraint", "reservation"):
            if value := getattr(request, key):
                options.append(f"--{key}={self.word(f'request.{key}', value)}")
        if request.exclusive:
            options.append("--exclusive")
        if request.licenses:
            options.append(f"--licenses={','.join(request.licenses)}")
        ends = {"afterok": request.after, "afterany": request.after_any, "after": request.after_begun}
        if awaited := ",".join(f"{end}:{':'.join(jobs)}" for end, jobs in ends.items() if jobs):
            options += [f"--dependency={awaited}", "--kill-on-invalid-dep=yes"]
        if request.exclude:
            options.append(f"--exclude={','.join(request.exclude)}")
        if request.array:
            options.append(f"--array=0-{request.array - 1}" + (f"%{request.parallel}" if request.parallel else ""))
        if request.lives_on:
            options.append("--no-kill")
        own = (*request.ask, *request.extra, *request.submit_args)
        if wrong := next(filter(self.refuses_option, own), None):
            raise UserError(f"{wrong!r} {self.refuses_option(wrong)}")
        return directives("#SBATCH", [_quoted(option) for option in [*options, *request.extra]], LONGEST_BYTES)

    def refuses_option(self, option: str) -> str | None:
        if not OTHER_CLUSTER.match(option):
            return None
        return (
            "submits to another cluster, whose queue torusrun does not query: write one site per cluster, and log in "
            "there or set SLURM_CONF to its slurm.conf"
        )

    def submit_command(self, script: Path, request: Request) -> list[str]:
        return ["sbatch", "--parsable", *request.submit_args, str(script)]

    def in_turn_args(self, name: str, before: str) -> list[str]:
        return [f"--job-name={name}", f"--dependency=afterany:{before}"]

    def ask_command(self, request: Request) -> list[str]:
        return ["sbatch", "--test-only", *request.submit_args]

    def start_in(self, answer: str) -> float | None:
        start = re.search(r"^sbatch: Job \d+ to start at (\S+)", answer, re.MULTILINE)
        return states.moment(start[1]) if start else None

    def start_query(self, job_ids: Sequence[str]) -> Query[dict[str, float]]:
        return Query(["squeue", "--me", "--states=PENDING", "--array", "--noheader", "--format=%i|%S"], states.starts)

    def job_id(self, stdout: str) -> str:
        if job := printed_id(stdout, *IDS):
            return job
        raise SiteError(f"sbatch did not print a job id but {stdout!r}; see squeue --me for whether it was submitted")

    def job_elsewhere(self, stdout: str) -> str:
        job = CLUSTER.search(stdout)  # squeue may not show such a job
        return f"sbatch submitted job {job[1]} to the cluster {job[2]}; see `squeue -M {job[2]}`" if job else ""

    def task_id(self, job_id: str, index: int) -> str:
        return f"{job_id}_{index}"

    def array_of(self, task_id: str) -> str:
        return task_id.partition("_")[0]

    def cancel_tasks_command(self, job_id: str, first: int, last: int) -> list[str]:
        return ["scancel", f"{job_id}_[{first}-{last}]"]

    def status_query(self, job_ids: Sequence[str]) -> Query[dict[str, Status]]:
        # If ids are named, squeue fails as a whole if one id is too old. One answer has all of the user's jobs.
        # --array: a line for each task; else waiting tasks share a line, whose list of them squeue may cut.
        return Query(["squeue", "--me", "--states=all", "--array", "--noheader", "--format=%i|%T|%r|%N"], states.queued)

    def accounting_query(self, job_ids: Sequence[str]) -> Query[dict[str, Status]]:
        columns = "--format=JobID,State,ExitCode,NodeList"
        jobs = f"--jobs={','.join(job_ids)}"
        return Query(["sacct", "--allocations", "--noheader", "--parsable2", columns, jobs], states.recorded)

    def find_query(self, token: str) -> Query[list[str]]:
        command = ["squeue", "--me", "--states=all", "--noheader", f"--name={token}", "--format=%F"]
        return Query(command, states.called)

    def cancel_command(self, job_id: str) -> list[str]:
        return ["scancel", job_id]

    def leave_out_command(self, job_id: str, tasks: tuple[int, int] | None, request: Request) -> list[str] | None:
        words = (*request.extra, *request.submit_args)
        if any(word.startswith(("--exclude", "-x")) for word in words):  # the site's list, which this would replace
            return None
        named = job_id if tasks is None else f"{job_id}_[{tasks[0]}-{tasks[1]}]"
        return ["scontrol", "update", f"JobId={named}", f"ExcNodeList={','.join(request.exclude)}"]

    def hosts(self, environment: Mapping[str, str], this_host: str) -> list[str]:
        text = environment.get("SLURM_JOB_NODELIST")
        if not text:
            raise SiteError("SLURM_JOB_NODELIST is not set: this is not inside a Slurm job")
        return expand(text)


def _literal(path: Path) -> str:
    """A path with its `%` escaped, so that sbatch replaces nothing in it."""
    return str(path).replace("%", "%%")


def _quoted(option: str) -> str:
    """An option quoted for a directive line of sbatch: a backslash keeps any character as it is, also in quotes."""
    if re.fullmatch(r"[A-Za-z0-9_@%+=:,./-]+", option):
        return option
    return '"' + re.sub(r'(["\\])', r"\\\1", option) + '"'
