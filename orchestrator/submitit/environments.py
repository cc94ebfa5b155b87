"""submitit inside a job of PBS or Grid Engine: the ids of the job and task, and how to requeue it.

`orchestrator.submitit.environments FOLDER` runs the function of such a job by submitit's own entry.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from types import FrameType
from typing import ClassVar

from submitit.core import job_environment, utils

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import private
from torusrun.orchestrator.schedulers.gridengine.scheduler import GridEngine
from torusrun.orchestrator.schedulers.pbs.scheduler import PBS

CONTINUES = "TORUSRUN_CONTINUES"  # the variable with the id of the job that this job continues


class ClusterEnvironment(job_environment.JobEnvironment):
    """A job has one task."""

    scheduler: ClassVar[str]
    _env: ClassVar[dict[str, str]] = {}
    num_tasks, num_nodes, node, global_rank, local_rank = 1, 1, 0, 0, 0

    @classmethod
    def name(cls) -> str:
        return cls.scheduler

    def _handle_signals(self, paths: utils.JobPaths, submission: utils.DelayedSubmission) -> None:
        """As in submitit, but a warning that comes twice (from the scheduler and from the script) counts once."""
        super()._handle_signals(paths, submission)
        handler = signal.getsignal(self._usr_sig())

        def once(number: int, frame: FrameType | None) -> None:
            signal.signal(number, signal.SIG_IGN)
            handler(number, frame)  # type: ignore[operator, misc]

        signal.signal(self._usr_sig(), once)


class PBSEnvironment(ClusterEnvironment):
    """PBS does not let ordinary users requeue a job, so a checkpointed job continues in a new job.

    The job's script submits it last, after all tasks have ended: PBS accepts no dependency on an array's task.
    """

    scheduler = PBS.name
    _env: ClassVar[dict[str, str]] = {
        "job_id": "PBS_JOBID",
        "array_job_id": "PBS_ARRAY_ID",
        "array_task_id": "PBS_ARRAY_INDEX",
    }

    @property
    def job_id(self) -> str:
        return os.environ.get(CONTINUES) or super().job_id

    def _requeue(self, countdown: int) -> None:
        """Write the script of the next job: the same script, for this task alone, with the same job id for submitit."""
        paths, job_id = self.paths, self.job_id
        lines = paths.submission_file.read_text(encoding="utf-8").splitlines(keepends=True)
        own = [line for line in lines if not line.startswith(("#PBS -J", "#PBS -W depend"))]
        stays = {CONTINUES: job_id, "PBS_ARRAY_ID": self.array_job_id, "PBS_ARRAY_INDEX": self.array_task_id}
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in stays.items() if value)
        head = own.index("umask 077\n")  # where the directives end
        private.write_bytes(paths.folder / f"{job_id}_again.sh", "".join([*own[:head], exports, *own[head:]]).encode())


class GridEngineEnvironment(ClusterEnvironment):
    """Grid Engine runs a job again if its script ends with a certain exit code."""

    scheduler = GridEngine.name
    _env: ClassVar[dict[str, str]] = {"job_id": "JOB_ID"}

    @property
    def array_job_id(self) -> str | None:
        return os.environ["JOB_ID"] if self.array_task_id else None

    @property
    def array_task_id(self) -> str | None:
        task = os.environ.get("SGE_TASK_ID", "undefined")
        return str(int(task) - 1) if task.isdigit() else None

    def _requeue(self, countdown: int) -> None:
        private.write_bytes(self.paths.folder / f"{self.job_id}_again", b"")


def here() -> ClusterEnvironment:
    """The environment for this job. submitit takes a single class per package, so a variable of the job selects it.

    Those for Slurm and this machine come with submitit; any other scheduler gets the common class.
    """
    name = os.environ.get("SUBMITIT_EXECUTOR", GridEngineEnvironment.scheduler)
    if name == PBSEnvironment.scheduler:
        return PBSEnvironment()
    if ":" not in name:  # not a site's own class
        return GridEngineEnvironment()
    variables = {"job_id": schedulers.get(name).variables.job}
    other: type[ClusterEnvironment] = type("Other", (ClusterEnvironment,), {"scheduler": name, "_env": variables})
    return other()


def main() -> None:
    from submitit.core.submission import submitit_main

    sys.path.append(os.getcwd())  # last: a user's module is found here, but does not replace a library's
    try:
        submitit_main()
    finally:  # Python removes its handlers while it ends: then a warning would kill a task that is done
        signal.signal(ClusterEnvironment._usr_sig(), signal.SIG_IGN)


if __name__ == "__main__":
    main()
