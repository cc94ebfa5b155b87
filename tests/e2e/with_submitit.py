"""A script of somebody who knows submitit and has never heard of torusrun: `with_submitit.py CLUSTER WHAT`."""

import os
import sys
import time
from pathlib import Path

import submitit


def square(number: int) -> int:
    print(f"the square of {number}")
    return number * number


def where() -> tuple[str, int, int, list[str]]:
    env = submitit.JobEnvironment()
    return env.cluster, env.num_tasks, env.global_rank, list(env.hostnames)


class Counter(submitit.helpers.Checkpointable):
    """Counts slowly; asked to checkpoint, it goes on from where it was in a later try."""

    def __init__(self) -> None:
        self.tries: list[str] = []
        self.count = 0

    def __call__(self) -> tuple[int, int]:
        self.tries.append(submitit.JobEnvironment().job_id)
        while self.count < 40:
            time.sleep(1)
            self.count += 1
            print(self.count, flush=True)
        return self.count, len(self.tries)

    def checkpoint(self) -> submitit.helpers.DelayedSubmission:
        return submitit.helpers.DelayedSubmission(self)


def function(executor: submitit.AutoExecutor) -> None:
    job = executor.submit(square, 7)
    assert job.result() == 49
    assert "the square of 7" in (job.stdout() or "")
    failing = executor.submit(square, "seven")
    assert isinstance(failing.exception(), submitit.core.utils.FailedJobError)
    sleeping = executor.submit(time.sleep, 300)
    while sleeping.state not in ("RUNNING", "PENDING"):
        time.sleep(1)
    sleeping.cancel()
    while not sleeping.done(force_check=True):
        time.sleep(1)
    assert sleeping.exception() is not None
    nodes = 1 if executor.cluster == "local" else 2
    executor.update_parameters(nodes=nodes, tasks_per_node=2, gridengine_ask=["-pe mpi {ranks}"])
    results = executor.submit(where).results()
    assert sorted(rank for _, _, rank, _ in results) == list(range(len(results))), results
    assert {tasks for _, tasks, _, _ in results} == {len(results)}
    assert len(results) == 2 * nodes and {len(hosts) for *_, hosts in results} == {nodes}, results


def array(executor: submitit.AutoExecutor) -> None:
    jobs = executor.map_array(square, range(20))
    assert [job.result() for job in jobs] == [number * number for number in range(20)]
    with executor.batch():
        jobs = [executor.submit(square, number) for number in (3, 4)]
    assert [job.result() for job in jobs] == [9, 16]


def checkpoint(executor: submitit.AutoExecutor) -> None:
    """It is asked to checkpoint before its limit of a minute, and finishes on its second try."""
    job = executor.submit(Counter())
    if executor.cluster in ("slurm", "local"):  # Slurm sends its warning up to a minute early; local ones have none
        while "3" not in (job.stdout() or "").split():
            time.sleep(0.5)
        job._interrupt()
    count, tries = job.result()
    assert (count, tries) == (40, 2), (count, tries)


def main() -> None:
    cluster, what = sys.argv[1:]
    executor = submitit.AutoExecutor(Path(f"submitit-{cluster}-{what}") / "%j", cluster=cluster)
    executor.update_parameters(name="with-submitit", timeout_min=2 if cluster in ("slurm", "local") else 1)
    executor.update_parameters(slurm_signal_delay_s=15, slurm_mem="500M", pbs_signal_delay_s=35)
    executor.update_parameters(gridengine_signal_delay_s=35)
    {"function": function, "array": array, "checkpoint": checkpoint}[what](executor)
    print(f"{what}: well", os.getpid())


if __name__ == "__main__":
    main()
