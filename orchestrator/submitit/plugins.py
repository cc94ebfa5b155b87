"""PBS and Grid Engine for every user of submitit: `submitit.AutoExecutor(folder, cluster="pbs")` or `"gridengine"`.

submitit pickles the function, and its own entry runs it in the job; the directives, the commands and the states are
those of torusrun's schedulers. A job has one task on one node: torusrun's own runs have many. Arrays by `map_array` and
`batch`, checkpoint and requeue before the time limit, and `_interrupt()` work as on Slurm.
"""

from __future__ import annotations

import os
import shlex
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from submitit.core import core, plugins, utils

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import private, process
from torusrun.orchestrator.base.environment import safe, which
from torusrun.orchestrator.base.templates import Text, render
from torusrun.orchestrator.schedulers.client import Client
from torusrun.orchestrator.schedulers.gridengine.scheduler import GridEngine
from torusrun.orchestrator.schedulers.interface import Request
from torusrun.orchestrator.schedulers.pbs.scheduler import PBS
from torusrun.orchestrator.schedulers.words import filled, fitting
from torusrun.orchestrator.submitit.cluster_job import ClusterJob, Watcher

COMMAND_TIMEOUT_S = 60.0

# Every parameter in addition to submitit's, with its default; users write pbs_queue, gridengine_ask, and so on.
OWN: dict[str, Any] = {
    "queue": None,
    "account": None,  # PBS: the project (-P); Grid Engine: the project (-P)
    "ask": (),  # the site's own request, as in ["-l rt_F={nodes}"] or ["-pe mpi {ranks}"]
    "directives": (),  # further directives, as in ["-m e"]
    "submit_args": (),  # further words of qsub, as in ["-g", "{account}"]
    "after": (),  # ids of jobs that must succeed (Grid Engine: end) first
    "env": ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX"),  # variables that the job gets
    "setup": (),  # shell lines before the function
    "teardown": (),  # shell lines after it
    "array_parallelism": 256,
    "signal_delay_s": 90,  # between the request to checkpoint and the time limit
}
SHARED = {
    "name": "submitit",
    "timeout_min": 5,
    "mem_gb": None,
    "nodes": 1,  # and no more
    "tasks_per_node": 1,  # and no more
    "cpus_per_task": 1,
    "gpus_per_node": 0,
    "stderr_to_stdout": False,
}


class ClusterExecutor(core.Executor):
    """Submits to the scheduler called `cluster`. Parameters: see `update_parameters` and docs/guides/submitit.md."""

    cluster: ClassVar[str]
    programs: ClassVar[tuple[str, ...]]

    def __init__(self, folder: str | Path, max_num_timeout: int = 3, python: str | None = None) -> None:
        super().__init__(folder)
        self.max_num_timeout = max_num_timeout
        if self.affinity() <= 0:
            raise RuntimeError(f"{', '.join(self.programs)}: not all on PATH; is this a submit host of {self.cluster}?")
        self.python = shlex.quote(sys.executable) if python is None else python
        self.scheduler = schedulers.get(self.cluster)
        self.client = Client(self.scheduler, COMMAND_TIMEOUT_S)

    @classmethod
    def name(cls) -> str:
        return cls.cluster

    @classmethod
    def affinity(cls) -> int:
        return 2 if all(which(program) for program in cls.programs) else -1

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        return set(OWN)

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        if unknown := sorted(set(kwargs) - set(OWN) - set(SHARED)):
            valid = "\n  - ".join(f"{name} (default: {value!r})" for name, value in sorted({**SHARED, **OWN}.items()))
            raise ValueError(f"Unavailable parameter(s): {unknown}\nValid parameters are:\n  - {valid}")
        if any(kwargs.get(name) not in (None, 1) for name in ("nodes", "tasks_per_node")):
            raise ValueError("a job has one task on one node: `torusrun run --nodes N -- COMMAND` starts many")
        super()._internal_update_parameters(**kwargs)

    def request(self, array: int = 0) -> Request:
        p = {**SHARED, **OWN, **self.parameters}
        words = {
            "nodes": 1,
            "ranks_per_node": 1,
            "cpus_per_rank": p["cpus_per_task"],
            "gpus": p["gpus_per_node"],
            "account": p["account"],
        }
        named = any("{account}" in text for text in (*p["ask"], *p["submit_args"]))
        return Request(
            name=fitting(p["name"]),
            nodes=1,
            ranks_per_node=1,
            cpus_per_rank=p["cpus_per_task"],
            gpus_per_node=p["gpus_per_node"],
            memory_bytes=int(p["mem_gb"] * 2**30) if p["mem_gb"] else None,
            time_s=p["timeout_min"] * 60.0,
            queue=p["queue"],
            account=None if named else p["account"],
            stdout=Path(os.devnull),
            stderr=Path(os.devnull),
            ask=filled(p["ask"], **words),
            extra=tuple(p["directives"]),
            submit_args=filled(p["submit_args"], **words),
            after=tuple(p["after"]),
            array=array,
            parallel=min(array, p["array_parallelism"]),
        )

    def _internal_process_submissions(
        self, delayed_submissions: Sequence[utils.DelayedSubmission]
    ) -> list[core.Job[Any]]:
        pickles = [self._pickled(delayed) for delayed in delayed_submissions]
        if len(pickles) == 1:
            jobs = [self._submit(self.request())]
        else:
            array = self._submit(self.request(len(pickles)))
            jobs = [self._job(f"{array.job_id}_{index}") for index in range(len(pickles))]
        for job, pickled in zip(jobs, pickles, strict=True):
            job.paths.move_temporary_file(pickled, "submitted_pickle")
            if not job.paths.submission_file.exists():  # a task with its own folder, which continues by this script
                job.paths.submission_file.symlink_to(array.paths.submission_file.resolve())
        return jobs

    def _pickled(self, delayed: utils.DelayedSubmission) -> Path:
        folder = utils.JobPaths.get_first_id_independent_folder(self.folder)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path: Path = folder / f"{uuid.uuid4().hex}.pkl"
        delayed.set_timeout(self.parameters.get("timeout_min", SHARED["timeout_min"]), self.max_num_timeout)
        delayed.dump(path)
        path.chmod(0o600)
        return path

    def _submit(self, request: Request) -> core.Job[Any]:
        folder = utils.JobPaths.get_first_id_independent_folder(self.folder)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        script = folder / f"{uuid.uuid4().hex}.sh"
        private.write_bytes(script, self._text(request).encode())
        job = self._job(self.client.submit(script, request))
        job.paths.move_temporary_file(script, "submission_file")
        return job

    def _job(self, job_id: str) -> core.Job[Any]:
        return self.job_class(folder=self.folder, job_id=job_id, tasks=[0])

    def _text(self, request: Request) -> str:
        p = {**SHARED, **OWN, **self.parameters}
        task = f"{self.python} {shlex.join(process.module('', 'torusrun.orchestrator.submitit.environments')[1:])}"
        return render(
            f"job/submitit_{self.cluster}.sh.j2",
            directives=[Text(line) for line in self.scheduler.directives(request)],
            head=[Text(line) for line in self.scheduler.script.head],
            scheduler=self.cluster,
            submit=Text(shlex.join(self.client.submit_argv(Path(), request)[:-1])),
            folder=self.folder,
            error=Text("out" if p["stderr_to_stdout"] else "err"),
            cwd=Path.cwd(),
            env={name: _carried(name, os.environ[name]) for name in p["env"] if name in os.environ},
            setup=[Text(line) for line in p["setup"]],
            teardown=[Text(line) for line in p["teardown"]],
            task=Text(task),
            limit_s=int(request.time_s),
            warn_after_s=max(0, int(request.time_s - p["signal_delay_s"])),
        )

    def _num_tasks(self) -> int:
        return 1


def _carried(name: str, value: str) -> str:
    """A variable's value for the job. PYTHONPATH gets no relative entry: the job puts its directory last."""
    if name != "PYTHONPATH":
        return safe({name: value})[name]
    entries = [os.path.normpath(entry) for entry in value.split(":")]  # an empty entry is "."
    return ":".join(os.path.join(os.getcwd(), entry) for entry in entries if entry != ".")


class PBSJob(ClusterJob[core.R]):
    watcher = Watcher(Client(PBS(), COMMAND_TIMEOUT_S))


class PBSExecutor(ClusterExecutor):
    """PBS Pro and OpenPBS."""

    cluster = PBS.name
    programs = ("qsub", "pbsnodes")
    job_class = PBSJob

    @classmethod
    def name(cls) -> str:
        # submitit takes one executor per package, since its entry points have fixed names. It calls this method while
        # it reads its list of plug-ins, so this adds the second executor to the list, once.
        known = plugins._get_plugins()[0]
        if GridEngineExecutor not in known:
            known.append(GridEngineExecutor)
        return cls.cluster


class GridEngineJob(ClusterJob[core.R]):
    watcher = Watcher(Client(GridEngine(), COMMAND_TIMEOUT_S))


class GridEngineExecutor(ClusterExecutor):
    """Grid Engine: Univa's, Altair's and the open source versions."""

    cluster = GridEngine.name
    programs = ("qsub", "qconf")
    job_class = GridEngineJob
