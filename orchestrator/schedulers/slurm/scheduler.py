"""Slurm, from 20.11 on: text with fixed fields only, since its JSON changes from release to release."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.base.errors import SiteError
from orchestrator.base.process import Finished
from orchestrator.base.states import State, Status, never_starts
from orchestrator.network.hosts.hostlist import expand
from orchestrator.schedulers.cluster_facts import Ask, ClusterFacts
from orchestrator.schedulers.interface import Request, Scheduler, directives
from orchestrator.schedulers.slurm import facts, reasons, topology

LONGEST_BYTES = 8000  # sbatch copies a word into a buffer of 8192 bytes and does not look at its end (opt.c, 22.05)

STATES = {
    "PENDING": State.PENDING,
    "CONFIGURING": State.PENDING,
    "REQUEUED": State.PENDING,
    "REQUEUE_FED": State.PENDING,
    "REQUEUE_HOLD": State.PENDING,
    "SPECIAL_EXIT": State.PENDING,
    "RESV_DEL_HOLD": State.PENDING,
    "RUNNING": State.RUNNING,
    "COMPLETING": State.RUNNING,
    "SUSPENDED": State.RUNNING,
    "STOPPED": State.RUNNING,
    "RESIZING": State.RUNNING,
    "SIGNALING": State.RUNNING,
    "STAGE_OUT": State.RUNNING,
    "COMPLETED": State.COMPLETED,
    "FAILED": State.FAILED,
    "TIMEOUT": State.TIMEOUT,
    "DEADLINE": State.TIMEOUT,
    "PREEMPTED": State.PREEMPTED,
    "NODE_FAIL": State.NODE_FAIL,
    "BOOT_FAIL": State.NODE_FAIL,
    "LAUNCH_FAILED": State.FAILED,
    "RECONFIG_FAIL": State.FAILED,
    "OUT_OF_MEMORY": State.OOM,
    "CANCELLED": State.CANCELLED,
    "REVOKED": State.CANCELLED,
}


class Slurm(Scheduler):
    """Slurm's commands and their output."""

    name = "slurm"
    tells_all_jobs = True
    programs = ("sinfo",)
    switches = topology.SWITCHES
    silent = r"timed out on send/recv|Zero Bytes were transmitted or received"  # slurm_errno.c
    job_variable = "SLURM_JOB_ID"
    cancels_many = True
    cannot_exclude = ""

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
            "--no-requeue",  # a requeued job would run again under the same attempt; `resume` makes a new one
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
        ends = {"afterok": request.after, "afterany": request.after_any}
        if awaited := ",".join(f"{end}:{':'.join(jobs)}" for end, jobs in ends.items() if jobs):
            options += [f"--dependency={awaited}", "--kill-on-invalid-dep=yes"]
        if request.exclude:
            options.append(f"--exclude={','.join(request.exclude)}")
        return directives("#SBATCH", [_quoted(option) for option in [*options, *request.extra]], LONGEST_BYTES)

    def submit_command(self, script: Path, request: Request) -> list[str]:
        return ["sbatch", "--parsable", *request.submit_args, str(script)]

    def ask_command(self, request: Request) -> list[str]:
        return ["sbatch", "--test-only", *request.submit_args]

    def job_id(self, stdout: str) -> str:
        match = re.match(r"(\d+)(;[\w.-]+)?$", stdout.strip().splitlines()[-1] if stdout.strip() else "")
        if not match:
            raise SiteError(
                f"sbatch did not print a job id but {stdout!r}; see squeue --me for whether it was submitted"
            )
        return match[1]

    def status_command(self, job_ids: Sequence[str]) -> list[str]:
        # Naming ids makes squeue fail as a whole when one is too old; all of the user's jobs are one answer.
        return ["squeue", "--me", "--states=all", "--noheader", "--format=%i|%T|%r|%N"]

    def parse_status(self, said: Finished) -> dict[str, Status]:
        said.check("asking Slurm for the states of jobs")
        rows = [line.split("|", 2) for line in said.stdout.splitlines() if line.count("|") >= 3]
        return {job: _status(job, word, *rest.rsplit("|", 1)) for job, word, rest in rows}  # a reason may hold anything

    def accounting_command(self, job_ids: Sequence[str]) -> list[str]:
        return [
            "sacct",
            "--allocations",
            "--noheader",
            "--parsable2",
            "--format=JobID,State,ExitCode,NodeList",
            f"--jobs={','.join(job_ids)}",
        ]

    def parse_accounting(self, said: Finished) -> dict[str, Status]:
        if "accounting storage is disabled" in said.stderr:  # src/sacct/options.c: this site keeps no records
            return {}
        said.check("asking Slurm's accounting")
        rows = [line.split("|") for line in said.stdout.splitlines()]
        return {row[0]: _ended(*row) for row in rows if len(row) == 4}

    def find_command(self, token: str) -> list[str]:
        return ["squeue", "--me", "--states=all", "--noheader", f"--name={token}", "--format=%i"]

    def parse_found(self, said: Finished, token: str) -> list[str]:
        return said.check("asking Slurm for a job by its name").stdout.split()

    def cancel_command(self, job_id: str) -> list[str]:
        return ["scancel", job_id]

    def hosts(self, environment: Mapping[str, str], this_host: str) -> list[str]:
        text = environment.get("SLURM_JOB_NODELIST")
        if not text:
            raise SiteError("SLURM_JOB_NODELIST is not set: this is not inside a Slurm job")
        return expand(text)

    def cluster_facts(self, ask: Ask) -> ClusterFacts:
        return facts.describe(ask)

    def broadcast_commands(
        self, environment: Mapping[str, str], ready: Sequence[str], source: Path, destination: Path
    ) -> list[list[str]]:
        nodes = f"--ntasks={environment.get('SLURM_JOB_NUM_NODES', '1')}"
        once = ["srun", nodes, "--ntasks-per-node=1", "--mpi=none", *ready]
        # In a tree. Without --force, sbcast writes into no file that exists.
        return [once, ["sbcast", str(source), str(destination)]]

    def remote_command(self, host: str, command: str) -> list[str]:
        one = ["--nodes=1", "--ntasks=1", f"--nodelist={host}"]
        return ["srun", *one, "--overlap", "--cpu-bind=none", "--mpi=none", "--input=none", "/bin/sh", "-c", command]

    def shell_command(
        self, job_id: str, host: str, argv: Sequence[str], *, terminal: bool
    ) -> tuple[list[str], dict[str, str]]:
        one = ["--nodes=1", "--ntasks=1", f"--nodelist={host}", "--cpu-bind=none", "--mpi=none", "--quiet"]
        return ["srun", f"--jobid={job_id}", "--overlap", *one, *(["--pty"] if terminal else []), *argv], {}


def _status(job: str, word: str, reason: str, nodes: str) -> Status:
    """One row of squeue."""
    state, hosts = STATES.get(word, State.UNKNOWN), tuple(expand(nodes)) if nodes else ()
    if state is State.UNKNOWN:
        return Status(state, f"Slurm says {word}, which this torusrun does not know", hosts)
    if state is State.PENDING:
        meant, starts = reasons.pending(word, reason, job)
        return Status(state, meant, hosts) if starts else never_starts(meant, hosts)
    if state is State.RUNNING:
        return Status(state, reasons.running(word, reason), hosts)
    return Status(state, reasons.ended(word, reason, hosts), hosts)


def _ended(job: str, words: str, exit_code: str, nodes: str) -> Status:
    """One row of sacct, whose state may be 'CANCELLED by 1001'."""
    word = words.split()[0] if words.split() else ""
    state = STATES.get(word, State.UNKNOWN)
    hosts = tuple(expand(nodes)) if nodes and nodes != "None assigned" else ()
    if state.over:
        return Status(state, reasons.accounted(words, exit_code, hosts), hosts)
    if state is State.UNKNOWN:
        return Status(state, f"Slurm's accounting says {words!r}, which this torusrun does not know", hosts)
    return Status(state, f"squeue does not show it, but Slurm's accounting says {words}", hosts)


def _literal(path: Path) -> str:
    """A path in which sbatch replaces nothing."""
    return str(path).replace("%", "%%")


def _quoted(option: str) -> str:
    """An option as sbatch reads it from a directive line: a backslash takes any character as it is, in quotes too."""
    if re.fullmatch(r"[A-Za-z0-9_@%+=:,./-]+", option):
        return option
    return '"' + re.sub(r'(["\\])', r"\\\1", option) + '"'
