"""The time of submission and queries over the scheduler's own command, here and with peers: ratios of one run.

`python -m benchmarks.schedulers CLUSTER [ROUNDS]`, as an ordinary user of CLUSTER (slurm, pbs, gridengine); every job
is `true` and is cancelled. submitit comes with torusrun; PSI/J is measured if it is installed and knows CLUSTER.
"""

from __future__ import annotations

import contextlib
import datetime
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import process
from torusrun.orchestrator.schedulers.client import Client
from torusrun.orchestrator.schedulers.interface import Request

ROUNDS = 10
MANY = 100
FURTHER = {"slurm": ("--mem=100M",)}  # directives that an empty job needs

Submit = Callable[[], str]


class Bench:
    """The ways to submit one empty job, each returning its id."""

    def __init__(self, cluster: str, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.scheduler = schedulers.get(cluster)
        null, extra = Path("/dev/null"), FURTHER.get(cluster, ())
        self.request = Request("bench", 1, 1, 1, 0, None, 60.0, None, None, null, null, extra=extra)
        self.script = folder / "job.sh"
        self.script.write_text("\n".join(["#!/bin/bash", *self.scheduler.directives(self.request), "true\n"]))

    def ways(self) -> dict[str, Submit]:
        found = {"the command itself": self.raw, "torusrun submit (whole command)": self.torusrun}
        found["torusrun, in Python"] = self.in_python()
        found[f"submitit, cluster={self.cluster!r}" + ("" if self.cluster == "slurm" else " (ours)")] = self.submitit()
        with contextlib.suppress(ImportError, ValueError):
            found[f"PSI/J {metadata.version('psij-python')}"] = self.psij()
        return found

    def raw(self) -> str:
        argv = self.scheduler.submit_command(self.script, self.request)
        said = subprocess.run(argv, text=True, capture_output=True, check=True, timeout=60)
        return self.scheduler.job_id(said.stdout)

    def spec(self) -> Path:
        (self.folder / "site.yaml").write_text(
            f"scheduler: {self.cluster}\nlauncher: mpirun\nruns: {self.folder}/runs\npython: /bin/true\n"
            f"request: {{options: [{', '.join(FURTHER.get(self.cluster, ()))}]}}\n"
        )
        path = self.folder / "run.yaml"
        path.write_text("name: bench\nsite: site.yaml\ntime: 5m\ntrain: {}\n")
        return path

    def torusrun(self) -> str:
        argv = [sys.executable, "-m", "torusrun", "submit", str(self.spec())]
        said = subprocess.run(argv, text=True, capture_output=True, check=True, timeout=60)
        return self._job(said.stdout.strip())

    def in_python(self) -> Submit:
        import torusrun

        path = self.spec()
        return lambda: self._job(torusrun.submit(path).id)

    def _job(self, run: str) -> str:
        import torusrun
        from torusrun.orchestrator.run.state.record import read_record

        return read_record(torusrun.open_run(run).folder).job or ""

    def submitit(self) -> Submit:
        import submitit

        executor = submitit.AutoExecutor(self.folder / "submitit", cluster=self.cluster)
        executor.update_parameters(timeout_min=1, slurm_mem="100M")
        return lambda: str(executor.submit(abs, -1).job_id)

    def psij(self) -> Submit:
        import psij

        executor = psij.JobExecutor.get_instance(self.cluster)

        def submit() -> str:
            job = psij.Job(psij.JobSpec(executable="/bin/true", launcher="single"))
            executor.submit(job)
            return str(job.native_id)

        return submit


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    started_s = time.perf_counter()
    value = call()
    return time.perf_counter() - started_s, value


def main() -> None:
    cluster = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    with tempfile.TemporaryDirectory(dir=Path.home()) as folder:
        bench = Bench(cluster, Path(folder))
        ways = bench.ways()
        taken: dict[str, list[float]] = {name: [] for name in ways}
        jobs: list[str] = []
        for _ in range(rounds + 1):  # the first round warms caches and is left out
            for name, submit in ways.items():
                seconds, job = timed(submit)
                taken[name].append(seconds)
                jobs.append(job)
                with contextlib.suppress(Exception):  # it may be over
                    Client(bench.scheduler, 60).cancel(job)
        print(
            f"{datetime.date.today()}; {cluster}; submitit {metadata.version('submitit')}; median of {rounds} in turns"
        )
        table({name: statistics.median(times[1:]) for name, times in taken.items()}, "the command itself")
        many = [*jobs, *(f"{900000 + n}" for n in range(MANY))]
        process.CALLS.clear()
        seconds, _ = timed(lambda: Client(bench.scheduler, 60).poll(many))
        print(f"states of {len(many)} jobs, ended and unknown ones among them: {seconds * 1e3:.0f} ms,", end=" ")
        print(", ".join(f"{count} x {program}" for program, count in process.CALLS.items()))


def table(medians: dict[str, float], base: str) -> None:
    for name, median in medians.items():
        print(f"  {name:40}{median * 1e3:8.1f} ms{median / medians[base]:8.2f} x {base}")


if __name__ == "__main__":
    main()
