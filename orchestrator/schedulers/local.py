"""This machine as a scheduler: a job is a session of processes, its id the first one's pid and start time.

The start time (clock ticks since boot, field 22 of /proc/PID/stat) keeps a reused pid from being taken for the job.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator import process
from orchestrator.errors import SiteError
from orchestrator.process import Finished
from orchestrator.schedulers.seam import Request, Scheduler
from orchestrator.states import State, Status

WAITING = "torusrun-waits"  # the name of a process that waits for other jobs before it begins


class Local(Scheduler):
    """Processes of this machine."""

    name = "local"
    template = "job/local.sh.j2"
    job_variable = "SUBMITIT_LOCAL_JOB_ID"

    def directives(self, request: Request) -> list[str]:
        return []

    def submit_command(self, script: Path, request: Request) -> list[str]:
        return process.module(sys.executable, "orchestrator.schedulers.detach", script, *request.after)

    def job_id(self, stdout: str) -> str:
        if not re.fullmatch(r"\d+\.\d+", stdout.strip()):
            raise SiteError(f"the local job did not start: it printed {stdout!r} in place of its id")
        return stdout.strip()

    def status_command(self, job_ids: Sequence[str]) -> list[str]:
        return ["cat", "--", *(f"/proc/{job_id.partition('.')[0]}/stat" for job_id in job_ids)]

    def parse_status(self, said: Finished) -> dict[str, Status]:
        return dict(_process(line) for line in said.stdout.splitlines() if ")" in line)

    def named_command(self, name: str) -> list[str]:
        return ["pgrep", "--full", "--euid", str(os.geteuid()), f"/{name.replace('.', '[.]')}/attempts/[0-9]+/job[.]sh"]

    def parse_named(self, said: Finished, name: str) -> list[str]:
        if said.exit_code > 1:  # 1: there is none
            said.check("looking for a process by its name")
        if said.stdout.split():
            raise SiteError(f"process {said.stdout.split()[0]} is at work for it, and will soon say so itself")
        return []

    def cancel_command(self, job_id: str) -> list[str]:
        return ["kill", "-TERM", "--", f"-{job_id.partition('.')[0]}"]

    def hosts(self, environment: Mapping[str, str], this_host: str) -> list[str]:
        return [this_host]


def job_id_of(stat: str) -> str:
    """The id of the process that a line of /proc/PID/stat describes."""
    return _process(stat)[0]


def _process(stat: str) -> tuple[str, Status]:
    pid = stat.partition(" ")[0]
    fields = stat.rpartition(")")[2].split()  # the command's name, in parentheses, may hold anything
    state, start_ticks = fields[0], fields[19]
    if state in "ZX":
        return f"{pid}.{start_ticks}", Status(State.LOST, "its process has ended")
    if f"({WAITING})" in stat:
        return f"{pid}.{start_ticks}", Status(State.PENDING, "it waits for other jobs to end")
    return f"{pid}.{start_ticks}", Status(State.RUNNING)
