"""What submitit asks inside a job of PBS or Grid Engine: which job and task this is, and how to be run again."""

from __future__ import annotations

import os
import shlex
import signal
import socket
from collections.abc import Sequence
from types import FrameType
from typing import ClassVar

from submitit.core import job_environment, utils

from orchestrator import private, process, schedulers

SUBMIT_TIMEOUT_S = 60.0
OF_SUBMITIT = ("slurm", "local")
RUN_ME_AGAIN = 99  # sge_conf(5): a job that ends with it is scheduled again, under the same id


class ClusterEnvironment(job_environment.JobEnvironment):
    """Ranks come from Open MPI's mpirun; a job of one task has none of its variables."""

    scheduler: ClassVar[str]
    _env: ClassVar[dict[str, str]] = {
        "num_tasks": "OMPI_COMM_WORLD_SIZE",
        "num_nodes": "TORUSRUN_NODES",
        "global_rank": "OMPI_COMM_WORLD_RANK",
        "local_rank": "OMPI_COMM_WORLD_LOCAL_RANK",
    }

    @classmethod
    def name(cls) -> str:
        return cls.scheduler

    @property
    def hostnames(self) -> Sequence[str]:
        return list(dict.fromkeys(schedulers.get(self.scheduler).hosts(os.environ, socket.gethostname())))

    @property
    def node(self) -> int:
        return self.global_rank // max(1, self.num_tasks // self.num_nodes)

    def _handle_signals(self, paths: utils.JobPaths, submission: utils.DelayedSubmission) -> None:
        """As submitit does, but a warning that comes twice (once by the scheduler, once by mpirun) counts once."""
        super()._handle_signals(paths, submission)
        handler = signal.getsignal(self._usr_sig())

        def once(number: int, frame: FrameType | None) -> None:
            signal.signal(number, signal.SIG_IGN)
            handler(number, frame)  # type: ignore[operator, misc]

        signal.signal(self._usr_sig(), once)


class PBSEnvironment(ClusterEnvironment):
    """PBS lets no ordinary user requeue a job, so a checkpointed one goes on in a new job that waits for its end."""

    scheduler = "pbs"
    _env: ClassVar[dict[str, str]] = {
        **ClusterEnvironment._env,
        "job_id": "PBS_JOBID",
        "array_job_id": "PBS_ARRAY_ID",
        "array_task_id": "PBS_ARRAY_INDEX",
    }

    @property
    def job_id(self) -> str:
        return os.environ.get("TORUSRUN_CONTINUES") or super().job_id

    def _requeue(self, countdown: int) -> None:
        paths, job_id = self.paths, self.job_id
        lines = paths.submission_file.read_text(encoding="utf-8").splitlines(keepends=True)
        first, *rest = (line for line in lines if not line.startswith(("#PBS -J", "#PBS -W depend")))
        script = paths.folder / f"{job_id}_again.sh"
        wait_for = f"#PBS -W depend=afterany:{os.environ['PBS_JOBID']}\n"
        head = rest.index("umask 077\n")  # where the directives end
        goes_on = f"export TORUSRUN_CONTINUES={shlex.quote(job_id)}\n"
        private.write_bytes(script, "".join([first, wait_for, *rest[:head], goes_on, *rest[head:]]).encode())
        said = process.run(["qsub", script], timeout_s=SUBMIT_TIMEOUT_S)
        successor = schedulers.get("pbs").job_id(said.check("submitting the job that goes on").stdout)
        private.write_bytes(paths.folder / f"{job_id}_continues_as", successor.encode())


class GridEngineEnvironment(ClusterEnvironment):
    """Grid Engine runs a job again that ends with a certain exit code."""

    scheduler = "gridengine"
    _env: ClassVar[dict[str, str]] = {**ClusterEnvironment._env, "job_id": "JOB_ID"}

    @property
    def array_job_id(self) -> str | None:
        return os.environ["JOB_ID"] if self.array_task_id else None

    @property
    def array_task_id(self) -> str | None:
        task = os.environ.get("SGE_TASK_ID", "undefined")
        return str(int(task) - 1) if task.isdigit() else None

    def _requeue(self, countdown: int) -> None:
        raise SystemExit(RUN_ME_AGAIN)


def here() -> ClusterEnvironment:
    """The environment for this job; submitit takes one of a package, so the job says which.

    Slurm's and this machine's come with submitit; a scheduler of neither kind has what is common to all.
    """
    name = os.environ.get("SUBMITIT_EXECUTOR", GridEngineEnvironment.scheduler)
    if name == PBSEnvironment.scheduler:
        return PBSEnvironment()
    if name not in schedulers.KNOWN or name in OF_SUBMITIT or name == GridEngineEnvironment.scheduler:
        return GridEngineEnvironment()
    variables = {**ClusterEnvironment._env, "job_id": schedulers.get(name).job_variable}
    other: type[ClusterEnvironment] = type("Other", (ClusterEnvironment,), {"scheduler": name, "_env": variables})
    return other()
