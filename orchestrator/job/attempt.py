"""The callable that is submitted: it names the run folder and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunAttempt:
    """One attempt of a run; called inside the job, it ends the process with a failure unless the run completed."""

    folder: str
    number: int

    def __call__(self) -> None:
        from submitit import JobEnvironment

        from orchestrator.job.supervise import supervise
        from orchestrator.runs.folder import RunFolder
        from orchestrator.states import State

        end = supervise(RunFolder(Path(self.folder)), self.number, JobEnvironment().job_id)
        if end.state is not State.COMPLETED:
            raise SystemExit(f"torusrun: {end.state.value}: {end.reason}")
