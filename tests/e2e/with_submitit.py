"""A script of a user who knows submitit but not torusrun: `with_submitit.py CLUSTER WHAT`."""

import os
import sys
import time
from pathlib import Path
from typing import Any

import submitit

MORE = 3  # counts of a later try
OURS = ("pbs", "gridengine")
LOGIN = 'it\'s; "odd" $HOME\nand of two lines'


def square(number: int) -> int:
    print(f"the square of {number}")
    return number * number


def where() -> dict[str, Any]:
    """The facts of a task about its job, in any place."""
    env = submitit.JobEnvironment()
    passed = {name: os.environ.get(name) for name in ("OF_THE_LOGIN", "OF_THE_SETUP", "LD_LIBRARY_PATH")}
    known = {
        "job": env.job_id,
        "tasks": env.num_tasks,
        "rank": env.global_rank,
        "hosts": tuple(env.hostnames),
        **passed,
    }
    return {**known, "array": env.array_job_id, "index": env.array_task_id, "here": env.hostname}


class Counter(submitit.helpers.Checkpointable):
    """Counts slowly until a checkpoint is requested; a later try continues from there, and ends after seconds."""

    def __init__(self) -> None:
        self.tries: list[dict[str, Any]] = []
        self.begins: list[int] = []
        self.count = 0

    def __call__(self) -> tuple[int, list[int], list[dict[str, Any]]]:
        self.tries.append(where())
        self.begins.append(self.count)
        while len(self.tries) == 1 or self.count < self.begins[-1] + MORE:
            time.sleep(1)
            self.count += 1
            print(self.count, flush=True)
        return self.count, self.begins, self.tries

    def checkpoint(self) -> submitit.helpers.DelayedSubmission:
        return submitit.helpers.DelayedSubmission(self)


def function(executor: submitit.AutoExecutor) -> None:
    job = executor.submit(square, 7)
    assert job.result() == 49
    assert "the square of 7" in (job.stdout() or "")
    if executor.cluster in OURS:
        ends_that_are_told(executor)
    tasks = spread(executor, tasks_per_node=2)
    check(executor.submit(where), tasks)


def ends_that_are_told(executor: submitit.AutoExecutor) -> None:
    """The reported ends of a function that fails, and of one that is cancelled in its first second."""
    failing = executor.submit(square, "seven")
    assert isinstance(failing.exception(), submitit.core.utils.FailedJobError)
    sleeping = executor.submit(time.sleep, 300)
    sleeping.cancel()
    while not sleeping.done(force_check=True):
        time.sleep(1)
    assert sleeping.exception() is not None
    while sleeping.state in ("PENDING", "RUNNING", "UNKNOWN"):  # it is done when its result says that it was ended
        time.sleep(1)
    assert sleeping.state == "CANCELLED", sleeping.state


def spread(executor: submitit.AutoExecutor, tasks_per_node: int) -> int:
    """Let jobs of submitit's own clusters have two nodes from now on; returns the number of tasks."""
    if executor.cluster in OURS:
        return 1
    nodes = 1 if executor.cluster == "local" else 2
    executor.update_parameters(nodes=nodes, tasks_per_node=tasks_per_node)
    return nodes * tasks_per_node


def check(job: submitit.Job[Any], tasks: int, told: list[dict[str, Any]] | None = None) -> None:
    """Check that every task has its own rank; its other facts are the same on each node, and right."""
    told = told or job.results()
    nodes = 1 if submitit_cluster(job) in ("local", *OURS) else 2
    assert sorted(task.pop("rank") for task in told) == list(range(tasks)), told
    here = {task.pop("here") for task in told}
    assert all(task == told[0] for task in told), told
    assert (told[0]["job"], told[0]["tasks"]) == (job.job_id, tasks), told
    assert len(here) == len(told[0]["hosts"]) == nodes, (here, told)
    if submitit_cluster(job) in OURS:
        assert (told[0]["OF_THE_LOGIN"], told[0]["OF_THE_SETUP"]) == (LOGIN, "a b") and told[0]["LD_LIBRARY_PATH"], told
        array, _, index = job.job_id.rpartition("_")
        assert (told[0]["array"], told[0]["index"]) == ((array, index) if array else (None, None)), told


def submitit_cluster(job: submitit.Job[Any]) -> str:
    return {"PBSJob": "pbs", "GridEngineJob": "gridengine", "LocalJob": "local"}.get(type(job).__name__, "slurm")


def array(executor: submitit.AutoExecutor) -> None:
    jobs = executor.map_array(square, range(20))
    assert [job.result() for job in jobs] == [number * number for number in range(20)]
    tasks = spread(executor, tasks_per_node=1)
    with executor.batch():
        jobs = [executor.submit(where), executor.submit(where)]
    for job in jobs:
        check(job, tasks)


def checkpoint(executor: submitit.AutoExecutor) -> None:
    """A job must checkpoint before its limit of a minute, and ends in a later try, alone or in an array."""
    tasks = spread(executor, tasks_per_node=1)
    jobs = [executor.submit(Counter())]
    with executor.batch():
        jobs += [executor.submit(Counter()), executor.submit(Counter())]
    for job in jobs:
        results = job.results()
        for count, begins, tries in results:  # on a busy machine a try may get the request again before it has begun
            assert len(tries) > 1 and begins[0] == 0 and begins == sorted(begins) and count == begins[-1] + MORE, (
                results
            )
        check(job, tasks, told=[tries[-1] for _, _, tries in results])


def main() -> None:
    cluster, what = sys.argv[1:]
    executor = submitit.AutoExecutor(Path(f"submitit-{cluster}-{what}") / "%j", cluster=cluster)
    os.environ["OF_THE_LOGIN"] = LOGIN
    for ours in OURS:
        setup = ["export OF_THE_SETUP='a b' LD_LIBRARY_PATH=\"/opt/of/the/setup:$LD_LIBRARY_PATH\""]
        executor.update_parameters(**{f"{ours}_env": ["PATH", "PYTHONPATH", "OF_THE_LOGIN"], f"{ours}_setup": setup})
    executor.update_parameters(name="1: with submitit/ü*" if cluster in OURS else "with-submitit")
    # A checkpoint is asked for when the limit is near. All other jobs have time to start on a busy machine.
    limit_min = 5 if what != "checkpoint" else 2 if cluster in ("slurm", "local") else 1
    executor.update_parameters(timeout_min=limit_min)
    executor.update_parameters(slurm_signal_delay_s=15, slurm_mem="500M", pbs_signal_delay_s=35)
    executor.update_parameters(gridengine_signal_delay_s=35)
    {"function": function, "array": array, "checkpoint": checkpoint}[what](executor)
    print(f"{what}: well", os.getpid())


if __name__ == "__main__":
    main()
