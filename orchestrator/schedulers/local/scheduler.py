"""This machine as a scheduler: a job is a session of processes; its id is the first process's pid and start time.

Its cores, memory and GPUs are a cluster of one node.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.process import Finished
from torusrun.orchestrator.base.states import Status
from torusrun.orchestrator.schedulers.cluster_facts import Ask, ClusterFacts, NodeKind, Queue, optional
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
from torusrun.orchestrator.schedulers.local import sessions
from torusrun.orchestrator.schedulers.local.sessions import states

SESSIONS = sessions.__name__
CORES = ("nproc",)
MEMORY = ("cat", "/proc/meminfo")
GPUS = ("nvidia-smi", "-L")
GPU = re.compile(r"^GPU \d+: [^(\n]*?\b([A-Z]{1,2}\d{1,4}S?)\b(?:[ -](PCIe|PCIE|NVL)\b)?", re.MULTILINE)
OWN_ID = ('read -r -a torusrun_stat < "/proc/$$/stat"', 'export SUBMITIT_LOCAL_JOB_ID="$$.${torusrun_stat[21]}"')


def describe(ask: Ask) -> ClusterFacts:
    listed, cores = optional(ask, GPUS), optional(ask, CORES).strip()
    names = re.findall(r"^GPU \d+: (.+) \(UUID", listed, re.MULTILINE)
    cpus = int(cores) if cores.isdecimal() else None
    kind = NodeKind(1, cpus, memory_bytes(optional(ask, MEMORY)), len(names), gpu_type(listed))
    return ClusterFacts(
        "this machine",
        (Queue("", (kind,), nodes=1, is_default=True),),
        launcher="spawn",
        commands={"nodes": "nvidia-smi" if names else " ".join(CORES)},
    )


def memory_bytes(text: str) -> int | None:
    """MemTotal of /proc/meminfo in bytes, None if the text lacks it."""
    match = re.search(r"^MemTotal:\s+(\d+) kB", text, re.MULTILINE)
    return int(match[1]) * 2**10 if match else None


def gpu_type(listed: str) -> str | None:
    """The type of the GPUs that `nvidia-smi -L` lists if all are alike, else None.

    As h100 for 'NVIDIA H100 80GB HBM3', h100-pcie for 'NVIDIA H100 PCIe', and a100_3g.20gb for such parts (MIG).
    """
    types = {"-".join(filter(None, name)).lower() for name in GPU.findall(listed)}
    parts = re.findall(r"^ +MIG (\S+)", listed, re.MULTILINE)
    return "_".join((*types, *parts[:1])) if len(types) == 1 else None


def _shell(job_id: str, host: str, argv: Sequence[str], terminal: bool) -> list[str]:
    return [*argv]


def _working(answer: Finished) -> list[str]:
    """Always []. Raises SiteError if a process works for the job: it will soon record the job itself."""
    answer.check("looking for a process by its name")
    if answer.stdout.split():
        raise SiteError(f"process {answer.stdout.split()[0]} works for it, and will record its state soon")
    return []


class Local(Scheduler):
    """Processes of this machine."""

    name = "local"
    variables = Variables("SUBMITIT_LOCAL_JOB_ID")
    traits = Traits(
        one_machine=True, cannot_exclude="a local run uses only this machine", says=frozenset({"cpus_per_rank"})
    )
    script = JobScript(OWN_ID)
    cluster = ClusterQueries(query_facts=describe)
    reach = Reach(_shell)

    def directives(self, request: Request) -> list[str]:
        return []

    def submit_command(self, script: Path, request: Request) -> list[str]:
        files = (script, script.parent / request.stdout, script.parent / request.stderr)
        return process.module(sys.executable, SESSIONS, *files, request.called, *request.after, *request.after_any)

    def job_id(self, stdout: str) -> str:
        if not re.fullmatch(r"\d+\.\d+", stdout.strip()):
            raise SiteError(f"the local job did not start: it printed {stdout!r} in place of its id")
        return stdout.strip()

    def status_query(self, job_ids: Sequence[str]) -> Query[dict[str, Status]]:
        command = ["sh", "-c", "cat /proc/[0-9]*/stat 2> /dev/null", "torusrun", *job_ids]
        return Query(command, lambda answer: states(answer.stdout.splitlines(), job_ids))

    def find_query(self, token: str) -> Query[list[str]]:
        return Query(process.module(sys.executable, SESSIONS, sessions.FIND, token), _working)

    def cancel_command(self, job_id: str) -> list[str]:
        return process.module(sys.executable, SESSIONS, sessions.END, job_id)

    def hosts(self, environment: Mapping[str, str], this_host: str) -> list[str]:
        return [this_host]
