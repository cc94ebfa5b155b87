"""Slurm's ways to reach the hosts of a job: steps of srun, and sbcast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.schedulers.reach import Reach


def shell(job_id: str, host: str, argv: Sequence[str], terminal: bool) -> list[str]:
    one = ["--nodes=1", "--ntasks=1", f"--nodelist={host}", "--cpu-bind=none", "--mpi=none", "--quiet"]
    return ["srun", f"--jobid={job_id}", "--overlap", *one, *(["--pty"] if terminal else []), *argv]


def remote(host: str, command: str) -> list[str]:
    one = ["--nodes=1", "--ntasks=1", f"--nodelist={host}"]
    return ["srun", *one, "--overlap", "--cpu-bind=none", "--mpi=none", "--input=none", "/bin/sh", "-c", command]


def broadcast(environment: Mapping[str, str], ready: Sequence[str], source: Path, destination: Path) -> list[list[str]]:
    nodes = f"--ntasks={environment.get('SLURM_JOB_NUM_NODES', '1')}"
    once = ["srun", nodes, "--ntasks-per-node=1", "--mpi=none", *ready]
    # sbcast copies in a tree. Without --force, it overwrites no file.
    return [once, ["sbcast", str(source), str(destination)]]


REACH = Reach(shell, remote, broadcast)
