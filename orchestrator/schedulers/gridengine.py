"""Grid Engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.process import Finished
from orchestrator.schedulers.seam import Request, Scheduler
from orchestrator.states import Status


class GridEngine(Scheduler):
    """Grid Engine's commands and their output."""

    name = "gridengine"
    template = "job/gridengine.sh.j2"

    def directives(self, request: Request) -> list[str]:
        raise NotImplementedError

    def submit_command(self, script: Path, request: Request) -> list[str]:
        raise NotImplementedError

    def job_id(self, stdout: str) -> str:
        raise NotImplementedError

    def status_command(self, job_ids: Sequence[str]) -> list[str]:
        raise NotImplementedError

    def parse_status(self, said: Finished) -> dict[str, Status]:
        raise NotImplementedError

    def cancel_command(self, job_id: str) -> list[str]:
        raise NotImplementedError

    def hosts(self, environment: Mapping[str, str], this_host: str) -> list[str]:
        raise NotImplementedError
