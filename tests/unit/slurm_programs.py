"""A Slurm whose commands do as they are told: programs in a folder on PATH, with a site and a run for them."""

import os
from pathlib import Path

import pytest


class SlurmPrograms:
    """Commands of a Slurm that takes each job, and shows none. `run` has the run's keys beside its name and site."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch, run: str, node: str = "{ranks: 1}") -> None:
        self.home = home
        (home / "bin").mkdir()
        for name in ("squeue", "sacct", "scancel"):
            self.program(name, "exit 0")
        self.takes()
        monkeypatch.setenv("PATH", f"{home}/bin:{os.environ['PATH']}")
        (home / "site.yaml").write_text(f"scheduler: slurm\nlauncher: srun\nnode: {node}\nruns: {home}/runs\n")
        (home / "run.yaml").write_text(f"name: x\nsite: ./site.yaml\n{run}\n")

    def program(self, name: str, text: str) -> None:
        (self.home / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.home / "bin" / name).chmod(0o755)

    def takes(self) -> None:
        self.program("sbatch", f'echo x >> "{self.home}/count"; wc -l < "{self.home}/count"')
